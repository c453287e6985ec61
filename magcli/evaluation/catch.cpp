// The part of Catch2's macros that exercises use, in a few lines: the real header takes longer to compile than a
// program may. The first check that fails is told on stderr and ends the process; main comes from the harness.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace Catch {
namespace Matchers {
template <typename T>
struct MatcherBase {
    virtual ~MatcherBase() = default;
    virtual bool match(T const& value) const = 0;
    virtual std::string describe() const = 0;
};
struct WithinAbs {
    double target, margin;
    WithinAbs(double target, double margin) : target(target), margin(margin) {}
    bool match(double value) const { return std::abs(value - target) <= margin; }
};
struct WithinRel {
    double target, share;
    WithinRel(double target, double share) : target(target), share(share) {}
    bool match(double value) const {
        return std::abs(value - target) <= share * std::fmax(std::abs(value), std::abs(target));
    }
};
}  // namespace Matchers
using Matchers::MatcherBase;

class Approx {
    double value_, epsilon_ = 1.1920929e-05, margin_ = 0;
    bool near(double other) const {
        return std::abs(other - value_) <= margin_ || std::abs(other - value_) <= epsilon_ * std::abs(value_);
    }

   public:
    explicit Approx(double value) : value_(value) {}
    Approx& epsilon(double epsilon) { return epsilon_ = epsilon, *this; }
    Approx& margin(double margin) { return margin_ = margin, *this; }
    friend bool operator==(double other, Approx const& approx) { return approx.near(other); }
    friend bool operator==(Approx const& approx, double other) { return approx.near(other); }
};

namespace inner {
struct Case {
    const char* name;
    void (*run)();
};
inline std::vector<Case>& cases() {
    static std::vector<Case> all;
    return all;
}
struct Added {
    Added(void (*run)(), const char* name, const char* = "") { cases().push_back({name, run}); }
};

[[noreturn]] inline void fail(const char* what, int line) {
    std::fflush(stdout);
    std::fprintf(stderr, "line %d of the tests: %s\n", line, what);
    std::_Exit(1);
}

// A case with sections is run once for each innermost section, from its beginning. A path has, level by level, which
// section a run enters; what a run saw says whether there is another one.
struct Sections {
    std::vector<int> path, seen;
    std::size_t depth = 0;
    bool enters() {
        if (path.size() == depth) path.push_back(0);
        if (seen.size() == depth) seen.push_back(0);
        return seen[depth]++ == path[depth];
    }
    bool another() {
        path.resize(seen.size());
        while (!path.empty() && path.back() + 1 >= seen[path.size() - 1]) path.pop_back();
        if (path.empty()) return false;
        return ++path.back(), true;
    }
    void begin() { seen.clear(), depth = 0; }
};
inline Sections& sections() {
    static Sections now;
    return now;
}
struct Section {
    bool entered = sections().enters();
    Section() { sections().depth += entered; }
    ~Section() { sections().depth -= entered; }
    explicit operator bool() const { return entered; }
};

inline void run(Case const& each) {
    sections() = {};
    do {
        sections().begin();
        try {
            each.run();
        } catch (std::exception const& error) {
            fail((std::string(each.name) + ": threw " + error.what()).c_str(), 0);
        } catch (...) {
            fail((std::string(each.name) + ": threw").c_str(), 0);
        }
    } while (sections().another());
}
inline int run_all() {
    for (auto const& each : cases()) run(each);
    return cases().empty() ? 1 : 0;
}
}  // namespace inner
}  // namespace Catch

#define CATCH_JOIN_(one, other) one##other
#define CATCH_JOIN(one, other) CATCH_JOIN_(one, other)
#define CATCH_CASE(function, ...)                                          \
    static void function();                                                \
    static Catch::inner::Added CATCH_JOIN(function, _added)(function, __VA_ARGS__); \
    static void function()
#define TEST_CASE(...) CATCH_CASE(CATCH_JOIN(catch_case_, __COUNTER__), __VA_ARGS__)
#define SECTION(...) if (Catch::inner::Section CATCH_JOIN(catch_section_, __LINE__); CATCH_JOIN(catch_section_, __LINE__))
#define CATCH_REGISTER_ENUM(...)
#define INFO(...) static_cast<void>(0)
#define CAPTURE(...) static_cast<void>(0)
#define SUCCEED(...) static_cast<void>(0)
#define FAIL(...) Catch::inner::fail("FAIL(" #__VA_ARGS__ ")", __LINE__)
#define CATCH_IF(condition, text) \
    do {                          \
        if (condition) Catch::inner::fail(text, __LINE__); \
    } while (false)
#define REQUIRE(...) CATCH_IF(!(__VA_ARGS__), "REQUIRE(" #__VA_ARGS__ ")")
#define REQUIRE_FALSE(...) CATCH_IF(static_cast<bool>(__VA_ARGS__), "REQUIRE_FALSE(" #__VA_ARGS__ ")")
#define REQUIRE_THAT(value, ...) CATCH_IF(!(__VA_ARGS__).match(value), "REQUIRE_THAT(" #value ", " #__VA_ARGS__ ")")
#define CATCH_THROWS(expression, caught, text)      \
    do {                                            \
        bool catch_thrown = false;                  \
        try {                                       \
            static_cast<void>(expression);          \
        } catch (caught) {                          \
            catch_thrown = true;                    \
        }                                           \
        if (!catch_thrown) Catch::inner::fail(text, __LINE__); \
    } while (false)
#define REQUIRE_THROWS(...) CATCH_THROWS((__VA_ARGS__), ..., "REQUIRE_THROWS(" #__VA_ARGS__ ")")
#define REQUIRE_THROWS_AS(expression, ...) \
    CATCH_THROWS(expression, __VA_ARGS__ const&, "REQUIRE_THROWS_AS(" #expression ", " #__VA_ARGS__ ")")
#define REQUIRE_NOTHROW(...) static_cast<void>(__VA_ARGS__)
#define CHECK REQUIRE
#define CHECK_FALSE REQUIRE_FALSE
#define CHECK_THAT REQUIRE_THAT
#define CHECK_THROWS REQUIRE_THROWS
#define CHECK_THROWS_AS REQUIRE_THROWS_AS
#define CHECK_NOTHROW REQUIRE_NOTHROW
