/* Ways to the kernel that a filter of system calls may have forgotten; says "open" or ends with the error's number. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static long attempt(const char *name) {
    if (!strcmp(name, "int80")) {
        long result = 20; /* getpid of 32 bits */
        __asm__ volatile("int $0x80" : "+a"(result) : : "memory");
        return result;
    }
    if (!strcmp(name, "x32")) return syscall(0x40000000 | SYS_getpid);
    if (!strcmp(name, "fork")) return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (!strcmp(name, "vfork")) return syscall(SYS_vfork);
    if (!strcmp(name, "clone3")) return syscall(SYS_clone3, "", 64);
    if (!strcmp(name, "namespace"))
        return syscall(SYS_clone, CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_NEWNET, 0, 0, 0, 0);
    if (!strcmp(name, "shared"))
        return (long)mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(!"known");
    return 0;
}

int main(int count, char **words) {
    if (attempt(words[count - 1]) == -1) return errno;
    puts("open");
    return 0;
}
