// Element-wise reductions of bulk copies (PTX ISA 9.7.9.25.4.2): every element is one atomic
// read-modify-write.
#pragma once

#include <cstdint>
#include <string>

#include "engines/engines.hpp"
#include "memory/tensor_map.hpp"

namespace mxfa::emulator {

const char* reduce_name(ReduceOp op);
int reduce_type_bytes(ReduceType type);
// "" when the operation exists for the type, else a sentence.
std::string reduce_check(ReduceOp op, ReduceType type);
ReduceType reduce_type_of(TensorType type);
// destination[i] = op(destination[i], source[i]) over `bytes`; neither need be aligned.
void reduce_elements(ReduceOp op, ReduceType type, uint8_t* destination, const uint8_t* source,
                     uint64_t bytes);

}  // namespace mxfa::emulator
