// The masks that every attention kernel is tested with.
#pragma once

#include <functional>
#include <vector>

#include "reference/attention.hpp"

namespace mxfa::test {

struct Mask {
  const char* name;
  std::function<void(reference::AttentionProblem&)> apply;
};

inline const std::vector<Mask> kMasks{
    {"no mask", [](reference::AttentionProblem&) {}},
    {"causal", [](reference::AttentionProblem& p) { p.causal = true; }},
    {"left window", [](reference::AttentionProblem& p) { p.window_left = 100; }},
    {"right window", [](reference::AttentionProblem& p) { p.window_right = 30; }},
    {"both windows", [](reference::AttentionProblem& p) { p.window_left = 70, p.window_right = 20; }},
    {"diagonal only", [](reference::AttentionProblem& p) { p.window_left = 0, p.window_right = 0; }},
    {"causal with windows",
     [](reference::AttentionProblem& p) { p.causal = true, p.window_left = 129, p.window_right = 7; }},
};

}  // namespace mxfa::test
