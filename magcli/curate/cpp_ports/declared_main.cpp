
int main() {
    const int out = dup(1);
    dup2(2, 1);  // output of the function itself is not part of the answer
    magcli_values values;
@ARGUMENTS@
    values.write(static_cast<const @RETURNS@&>(@CALL@));
    values.out += "\n";
    return write(out, values.out.data(), values.out.size()) == static_cast<ssize_t>(values.out.size()) ? 0 : 1;
}
