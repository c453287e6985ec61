
// Reads the arguments of the function above from stdin and writes its value to stdout. Both are tokens separated by blanks: true, 12, 0.5, "a\x20b", null, [ 1 2 ]; a map alternates keys and values.
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
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#include <unistd.h>

template <class Many>
concept magcli_many = requires { typename Many::value_type; } && !requires { typename Many::mapped_type; };

struct magcli_values {
    std::vector<std::string> tokens{std::istream_iterator<std::string>(std::cin), {}};
    std::size_t at = 0;
    std::string out;

    std::string next() { return tokens.at(at++); }

    void read(bool& value) { value = next() == "true"; }
    void read(char& value) { std::string text; read(text); value = text.at(0); }

    template <class Number> requires std::is_integral_v<Number> void read(Number& value) {
        const std::string token = next();
        const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
        if (error != std::errc{} || end != token.data() + token.size()) throw std::out_of_range(token);
    }

    template <class Number> requires std::is_floating_point_v<Number> void read(Number& value) {
        value = static_cast<Number>(std::strtod(next().c_str(), nullptr));
    }

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

    template <class One, class Other> void read(std::pair<One, Other>& value) {
        next();
        read(value.first);
        read(value.second);
        next();
    }

    template <magcli_many Many> void read(Many& value) {
        for (next(); tokens.at(at) != "]";) {
            typename Many::value_type item{};
            read(item);
            value.insert(value.end(), std::move(item));
        }
        next();
    }

    template <class Map> requires requires { typename Map::mapped_type; } void read(Map& value) {
        for (next(); tokens.at(at) != "]";) {
            typename Map::key_type key{};
            read(key);
            read(value[key]);
        }
        next();
    }

    void put(const std::string& token) { out += out.empty() ? token : " " + token; }

    void write(bool value) { put(value ? "true" : "false"); }
    void write(char value) { write(std::string(1, value)); }

    template <class Number> requires std::is_integral_v<Number> void write(const Number& value) {
        put(std::to_string(value));
    }

    template <class Number> requires std::is_floating_point_v<Number> void write(const Number& value) {
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

    template <class One, class Other> void write(const std::pair<One, Other>& value) {
        put("[");
        write(value.first);
        write(value.second);
        put("]");
    }

    template <magcli_many Many> void write(const Many& value) {
        put("[");
        for (const auto& item : value) write(static_cast<const typename Many::value_type&>(item));
        put("]");
    }

    template <class Map> requires requires { typename Map::mapped_type; } void write(const Map& value) {
        put("[");
        for (const auto& [key, item] : value) {
            write(key);
            write(item);
        }
        put("]");
    }
};
