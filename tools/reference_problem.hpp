// A shape as the double-precision references take it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "host/shape_file.hpp"
#include "reference/attention.hpp"
#include "reference/attention_backward.hpp"

namespace mxfa::tools {

reference::AttentionProblem attention_problem(const Shape& shape);
// The arithmetic of the kernel that serves the shape on an architecture.
reference::AttentionOptions attention_numerics(const std::string& arch, const Shape& shape);
reference::BackwardOptions backward_numerics(const Shape& shape);

}  // namespace mxfa::tools
