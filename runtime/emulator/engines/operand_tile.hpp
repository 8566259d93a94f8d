// Operand tiles of tensor-core instructions: from shared memory through a matrix descriptor into the layouts
// that tensor_numeric.hpp decodes.  K is always 32 bytes.
#pragma once

#include "engines/bulk.hpp"
#include "engines/matrix_descriptor.hpp"
#include "engines/tensor_numeric.hpp"

namespace mxfa::emulator {

// Scratch of one instruction: 150 KB, neither on the stack nor allocated anew.
struct TileWorkspace {
  Operands operands;
  alignas(64) uint8_t raw[Operands::kN * 32], turned[Operands::kN * 32];
};
TileWorkspace& tile_workspace();  // of this thread

// Rows [first, first + rows) of an operand in the shared memory of CTA `rank`: raw[(row - first) * 32 + byte
// of K].
void fetch_rows(Cluster& cluster, uint32_t rank, const MatrixDescriptor& d, int bits, bool mn_major,
                uint32_t first, uint32_t rows, uint8_t* raw);

// The bytes that rows [first, first + rows) of an operand occupy, for observers.
void add_rows(Touches& list, uint32_t rank, const MatrixDescriptor& d, int bits, bool mn_major,
              uint32_t first, uint32_t rows);

// Elements of 4 or 6 bits lie 16 to 16 bytes, packed from the first byte (PTX ISA 9.7.16.3); each gets a byte
// of its own.
void expand_narrow(Format format, uint32_t rows, uint8_t* raw);
void expand_sixteen(int bits, uint8_t* chunk);  // 16 bytes in place

// A has its rows along the fast axis: turned[k * kM + row] from raw[row * 32 + k].  `row0`: where the rows
// go.
void turn_a(int bits, const uint8_t* raw, uint32_t rows, uint32_t row0, uint8_t* turned);

}  // namespace mxfa::emulator
