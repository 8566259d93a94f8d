// Descriptor builders against values that other codebases' builders and the PTX ISA's own examples give.
#include "ptx/descriptor.cuh"
#include "support/catch.hpp"

using namespace mxfa::ptx;

// Instruction descriptors, as CUTLASS's make_instr_desc prints them.
static_assert(instruction_descriptor_bf16(128, 128, Major::kK, Major::kK) == 0x08200490);
static_assert(instruction_descriptor_bf16(128, 64, Major::kK, Major::kMN) == 0x08110490);
static_assert(instruction_descriptor_bf16(256, 128, Major::kMN, Major::kMN) == 0x10218490);
static_assert(instruction_descriptor_mxf8(128, 128, Major::kK, Major::kK, 0, 0) == 0x08a00000);
static_assert(instruction_descriptor_mxf8(128, 128, Major::kK, Major::kK, 1, 1) == 0x28a00010);
static_assert(instruction_descriptor_mxf8(128, 64, Major::kK, Major::kMN, 3, 3) == 0x68910030);
static_assert(instruction_descriptor_mxf8(256, 128, Major::kK, Major::kK, 0, 0) == 0x10a00000);

// Shared-memory descriptors of tcgen05.
static_assert(smem_descriptor_k_major(0x1000, Swizzle::k128B) == 0x4000404000000100);
static_assert(smem_descriptor_mn_major(0x4000, 8192, Swizzle::k128B) == 0x4000404002000400);
// The scale atom: start 0x80, SBO 8, no swizzle.
static_assert(smem_descriptor_scale_atom(0x800) == 0x0000400800000080);

// wgmma: what FlashAttention-3's kernels use for K (LBO field 1, ignored) and for V with tiles of 128 and 176
// rows.
static_assert(wgmma_descriptor(0, 16, 1024, Swizzle::k128B) == 0x4000004000010000);
static_assert(wgmma_descriptor(0, 128 * 128, 1024, Swizzle::k128B) == 0x4000004004000000);
static_assert(wgmma_descriptor(0, 176 * 128, 1024, Swizzle::k128B) == 0x4000004005800000);

TEST_CASE("ptx/descriptor: the cluster rank in a shared address drops out", "[ptx]") {
  CHECK(smem_descriptor_k_major(0x01001000, Swizzle::k128B) ==
        smem_descriptor_k_major(0x1000, Swizzle::k128B));
}

TEST_CASE("ptx/descriptor: advancing equals building at the later address", "[ptx]") {
  const uint32_t last = 0x38000 - 32;  // 224 KiB, as far as shared memory goes
  CHECK(descriptor_advance(smem_descriptor_k_major(last - 32, Swizzle::k128B), 32) ==
        smem_descriptor_k_major(last, Swizzle::k128B));
  CHECK(descriptor_advance(smem_descriptor_mn_major(0x4000, 8192, Swizzle::k128B), 4096) ==
        smem_descriptor_mn_major(0x5000, 8192, Swizzle::k128B));
}

TEST_CASE("ptx/descriptor: swizzle codes", "[ptx]") {
  CHECK(swizzle_bits(Swizzle::kNone) >> 61 == 0);
  CHECK(swizzle_bits(Swizzle::k128B) >> 61 == 2);
  CHECK(swizzle_bits(Swizzle::k64B) >> 61 == 4);
  CHECK(swizzle_bits(Swizzle::k32B) >> 61 == 6);
}
