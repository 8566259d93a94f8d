// Sequences by their lengths, as the runtime reads them.
#pragma once

#include "host/plan.hpp"
#include "host/shape_file.hpp"

namespace mxfa::test {

inline Sequences sequences_of(const std::vector<int32_t>& lengths) {
  return read_sequences("offsets", int32_t(lengths.size()), offsets_of(lengths).data());
}

}  // namespace mxfa::test
