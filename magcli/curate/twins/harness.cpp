
// Calls the function above with the arguments on stdin and writes its value to stdout. Both are tokens between
// blanks: true, 12, 0.5, "a\x20b", null, [ 1 2 ]; of a map keys and values take turns.
#undef int
#undef long
#undef double
#undef bool
#undef string
#undef endl
#undef for
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
#include <unistd.h>

struct magcli_values {
    std::vector<std::string> tokens{std::istream_iterator<std::string>(std::cin), {}};
    std::size_t at = 0;
    std::string out;

    std::string next() { return tokens.at(at++); }

    void read(bool& value) { value = next() == "true"; }
    void read(int& value) { value = std::stoi(next()); }
    void read(long long& value) { value = std::stoll(next()); }
    void read(double& value) { value = std::strtod(next().c_str(), nullptr); }

    void read(std::string& value) {
        const std::string token = next();
        for (std::size_t i = 1; i + 1 < token.size(); ++i) {
            if (token[i] != '\\') {
                value += token[i];
            } else {
                value += static_cast<char>(std::stoi(token.substr(i + 2, 2), nullptr, 16));
                i += 3;
            }
        }
    }

    template <class Item> void read(std::optional<Item>& value) {
        if (tokens.at(at) == "null") {
            next();
        } else {
            read(value.emplace());
        }
    }

    template <class... Items> void read(std::tuple<Items...>& value) {
        next();
        std::apply([this](Items&... part) { (read(part), ...); }, value);
        next();
    }

    template <class Item> void read(std::vector<Item>& value) {
        for (next(); tokens.at(at) != "]";) {
            Item item{};
            read(item);
            value.push_back(std::move(item));
        }
        next();
    }

    template <class Item> void read(std::set<Item>& value) {
        std::vector<Item> items;
        read(items);
        value.insert(items.begin(), items.end());
    }

    template <class Key, class Mapped> void read(std::map<Key, Mapped>& value) {
        for (next(); tokens.at(at) != "]";) {
            Key key{};
            read(key);
            read(value[key]);
        }
        next();
    }

    void put(const std::string& token) { out += out.empty() ? token : " " + token; }

    void write(bool value) { put(value ? "true" : "false"); }
    void write(int value) { put(std::to_string(value)); }
    void write(long long value) { put(std::to_string(value)); }

    void write(double value) {
        char text[64];
        put(std::string(text, std::to_chars(text, text + sizeof text, value).ptr));
    }

    void write(const std::string& value) {
        std::string token = "\"";
        for (const unsigned char sign : value) {
            if (sign > ' ' && sign < 127 && sign != '"' && sign != '\\') {
                token += static_cast<char>(sign);
            } else {
                char text[8];
                std::snprintf(text, sizeof text, "\\x%02x", sign);
                token += text;
            }
        }
        put(token + "\"");
    }

    template <class Item> void write(const std::optional<Item>& value) {
        if (value) {
            write(*value);
        } else {
            put("null");
        }
    }

    template <class... Items> void write(const std::tuple<Items...>& value) {
        put("[");
        std::apply([this](const Items&... part) { (write(part), ...); }, value);
        put("]");
    }

    template <class Item> void write(const std::vector<Item>& value) {
        put("[");
        for (const auto& item : value) write(static_cast<const Item&>(item));
        put("]");
    }

    template <class Item> void write(const std::set<Item>& value) { write(std::vector<Item>(value.begin(), value.end())); }

    template <class Key, class Mapped> void write(const std::map<Key, Mapped>& value) {
        put("[");
        for (const auto& [key, item] : value) {
            write(key);
            write(item);
        }
        put("]");
    }
};

int main() {
    const int out = dup(1);
    dup2(2, 1);  // what the function itself prints is no part of the answer
    magcli_values values;
@ARGUMENTS@
    values.write(static_cast<const @RETURNS@&>(@CALL@));
    values.out += "\n";
    return write(out, values.out.data(), values.out.size()) == static_cast<ssize_t>(values.out.size()) ? 0 : 1;
}
