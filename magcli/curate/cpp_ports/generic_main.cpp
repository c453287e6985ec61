
// Calls a function of @COUNT@ parameters with values of the types it declares.
struct magcli_caller {
    magcli_values& values;

    template <class Returns, class... Given>
        requires(sizeof...(Given) == @COUNT@)
    void operator()(Returns (*function)(Given...)) const { run<Given...>(function); }

    template <class Owner, class Returns, class... Given>
        requires(sizeof...(Given) == @COUNT@)
    void operator()(Returns (Owner::*method)(Given...)) const { run<Given...>(std::bind_front(method, Owner())); }

    template <class Owner, class Returns, class... Given>
        requires(sizeof...(Given) == @COUNT@)
    void operator()(Returns (Owner::*method)(Given...) const) const { run<Given...>(std::bind_front(method, Owner())); }

    template <class... Given, class Function> void run(Function function) const {
        std::tuple<std::remove_cvref_t<Given>...> given{};
        std::apply([this](auto&... each) { (values.read(each), ...); }, given);
        const auto& value = std::apply([&](auto&... each) -> decltype(auto) { return function(static_cast<Given&&>(each)...); }, given);
        values.write(value);
    }
};

// An overloaded function or a template is called with the types of the tests.
template <class Caller> void magcli_call(const Caller caller) {
    if constexpr (requires { caller(&@NAME@); }) {
        caller(&@NAME@);
    } else {
        caller.template run<@TYPES@>([](auto&&... given) -> decltype(auto) { return @CALL@(given...); });
    }
}

int main() {
    const int out = dup(1);
    dup2(2, 1);  // output of the function itself is not part of the answer
    magcli_values values;
    magcli_call(magcli_caller{values});
    values.out += "\n";
    return write(out, values.out.data(), values.out.size()) == static_cast<ssize_t>(values.out.size()) ? 0 : 1;
}
