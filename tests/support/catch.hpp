// One include for Catch2 2.13 (Debian 12) and 3.x.
#pragma once
#include <string>
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

namespace mxfa::test {

// Matches a text that holds another one.  Catch2 3 gave the name Contains to ranges.
inline auto Contains(const std::string& text) {
#if __has_include(<catch2/catch_all.hpp>)
  return Catch::Matchers::ContainsSubstring(text);
#else
  return Catch::Matchers::Contains(text);
#endif
}

}  // namespace mxfa::test
