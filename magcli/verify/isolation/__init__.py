"""What the sandbox is made of, in the order of use: what the machine offers (``primitives``), a runner with nothing
around it (``launch``), the script that it is (``runner``) with the filter that it sets (``seccomp``), one program and
its runs (``program``), and a program that tries to get out (``canary``)."""
