// From a shape to the library's plans, as every subcommand makes them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "host/shape_file.hpp"
#include "mxfa/mxfa.hpp"
#include "reference/quantize.hpp"

namespace mxfa::tools {

// What an operand of an MXFP8 attention, or op mxfp8_quantize, is quantised to.
struct QuantizeRequest {
  std::string name;  // "Q", "K", "V", "dO", or "the tensor"
  std::vector<int32_t> lengths;
  int32_t heads = 0;
  reference::BlockLayout layout = reference::BlockLayout::kAlongD;
};
// In the order they run; none for BF16 attention.  Q, K, V; of a backward also dO, and V once more along D
// where the forward's has its scales along the tokens.
std::vector<QuantizeRequest> quantize_requests(const Shape& shape);
const char* name_of(reference::BlockLayout layout);

Plan plan_quantize(const Context& context, const Shape& shape, const QuantizeRequest& request);
Plan plan_attention(const Context& context, const Shape& shape);  // forward, also of a backward shape
Plan plan_attention_backward(const Context& context, const Shape& shape);

struct PlannedKernel {
  std::string purpose;  // "quantize Q", "attention forward"
  nlohmann::ordered_json description;
};
// Plans everything the shape runs, the operation itself first.  A backward runs the forward for its O and
// LSE.
std::vector<PlannedKernel> plan_all(const Context& context, const Shape& shape);

}  // namespace mxfa::tools
