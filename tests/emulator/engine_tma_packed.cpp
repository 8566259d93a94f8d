// Tensor copies of packed 4- and 6-bit elements against an oracle that moves bit by bit (cuda.h,
// cuTensorMapEncodeTiled; PTX ISA 5.5.1).
#include <random>

#include "emulator/engine_harness.hpp"
#include "memory/tensor_map.hpp"

using namespace mxfa::emulator;
using namespace mxfa::emulator::test;

namespace {

struct Packed {
  int type;
  uint32_t bits, run_bytes;  // of an element; of 16 elements in shared memory
};
constexpr Packed kFour{13, 4, 8}, kFourGaps{14, 4, 16}, kSixGaps{15, 6, 16};

int get_bit(const uint8_t* bytes, uint64_t bit) { return bytes[bit / 8] >> bit % 8 & 1; }
void set_bit(uint8_t* bytes, uint64_t bit, int value) {
  bytes[bit / 8] = static_cast<uint8_t>((bytes[bit / 8] & ~(1 << bit % 8)) | value << bit % 8);
}

// A matrix of `rows` of `columns` elements and a box of it at (c0, c1).
struct Case {
  Packed p;
  int swizzle;
  uint32_t columns, rows, box0, box1;
  int32_t c0, c1;
  uint64_t pitch() const { return (columns * p.bits / 8 + 31) / 32 * 32; }
};

TensorMap encode(const Case& k, uint64_t address) {
  const uint64_t dims[] = {k.columns, k.rows}, strides[] = {k.pitch()};
  const uint32_t box[] = {k.box0, k.box1}, steps[] = {1, 1};
  TiledTensor t;
  t.type = k.p.type, t.rank = 2, t.address = address, t.dims = dims, t.strides = strides, t.box = box;
  t.element_strides = steps, t.swizzle = k.swizzle;
  TensorMap map;
  std::string error;
  const int code = encode_tiled(t, &map, &error);
  INFO(error);
  REQUIRE(code == 0);
  return map;
}

uint32_t swizzled(int mode, uint32_t a) {  // the modes that the packed types have
  return mode == 3 ? a ^ (a >> 7 & 7) << 4 : mode == 4 ? a ^ (a >> 7 & 3) << 5 : a;
}

// Calls visit(shared bit, global bit or -1 outside) for every bit of every element of the box.
template <class Visit>
void for_each_bit(const Case& k, uint32_t shared, Visit visit) {
  for (uint32_t row = 0; row < k.box1; ++row)
    for (uint32_t e = 0; e < k.box0; ++e)
      for (uint32_t b = 0; b < k.p.bits; ++b) {
        const uint32_t in_run = e % 16 * k.p.bits + b,
                       byte = row * (k.box0 / 16 * k.p.run_bytes) + e / 16 * k.p.run_bytes + in_run / 8;
        const int64_t x = int64_t{k.c0} + e, y = int64_t{k.c1} + row;
        const bool inside = x >= 0 && x < k.columns && y >= 0 && y < k.rows;
        visit(uint64_t{swizzled(k.swizzle, shared + byte)} * 8 + in_run % 8,
              inside ? (y * static_cast<int64_t>(k.pitch()) * 8 + x * k.p.bits + b) : int64_t{-1});
      }
}

struct Copied {
  Machine m;
  uint64_t data;
  TensorCopy copy;
  explicit Copied(const Case& k) : data(m.arena.allocate(k.pitch() * k.rows)) {
    std::mt19937 random(3);
    auto* bytes = reinterpret_cast<uint8_t*>(data);
    for (uint64_t i = 0; i < k.pitch() * k.rows; ++i) bytes[i] = static_cast<uint8_t>(random());
    const TensorMap map = encode(k, data);
    copy.map = m.arena.allocate(sizeof map);
    std::memcpy(reinterpret_cast<void*>(copy.map), &map, sizeof map);
    copy.rank = 2, copy.coordinates = {k.c0, k.c1}, copy.shared = 4096, copy.mbarrier = 1024;
  }
};

void check_load(const Case& k) {
  Copied c(k);
  mbarrier_init(c.m.warp(), 1024, 1);
  tma_load(c.m.warp(), 0, c.copy);
  // The gaps do not count: CUTLASS's and DeepGEMM's kernels expect the packed bytes.
  mbarrier_arrive(c.m.warp(), 1024, 1, k.box0 * k.box1 * k.p.bits / 8, false, false);
  CHECK(mbarrier_test_parity(c.m.warp(), 1024, 0));
  int wrong = 0;
  for_each_bit(k, 4096, [&](uint64_t shared, int64_t global) {
    wrong += get_bit(c.m.shared(0), shared) !=
             (global < 0 ? 0 : get_bit(reinterpret_cast<uint8_t*>(c.data), static_cast<uint64_t>(global)));
  });
  CHECK(wrong == 0);
}

void check_store(const Case& k) {
  Copied c(k);
  std::mt19937 random(5);
  for (uint32_t i = 4096; i < 64 * 1024; ++i) *c.m.shared(i) = static_cast<uint8_t>(random());
  auto* bytes = reinterpret_cast<uint8_t*>(c.data);
  std::vector<uint8_t> want(bytes, bytes + k.pitch() * k.rows);
  for_each_bit(k, 4096, [&](uint64_t shared, int64_t global) {
    if (global >= 0) set_bit(want.data(), static_cast<uint64_t>(global), get_bit(c.m.shared(0), shared));
  });
  tma_store(c.m.warp(), 0, c.copy);
  c.m.fire_all();
  CHECK(std::memcmp(want.data(), bytes, want.size()) == 0);
}

std::string refusal(const Case& k, int64_t address_step = 0) {
  const uint64_t dims[] = {k.columns, k.rows}, strides[] = {k.pitch()};
  const uint32_t box[] = {k.box0, k.box1}, steps[] = {1, 1};
  TiledTensor t;
  t.type = k.p.type, t.rank = 2, t.dims = dims, t.strides = strides, t.box = box, t.element_strides = steps;
  t.address = static_cast<uint64_t>(0x10000 + address_step), t.swizzle = k.swizzle;
  TensorMap map;
  std::string error;
  return encode_tiled(t, &map, &error) == 0 ? "" : error;
}

}  // namespace

TEST_CASE("packed elements are loaded bit for bit, with and without gaps", "[engine][tma]") {
  for (const int swizzle : {0, 3})
    for (const int32_t c0 : {0, 128, 256, -128, 512}) {
      CAPTURE(swizzle, c0);
      check_load({kFour, swizzle, 600, 20, 256, 9, c0, 3});
      check_load({kFourGaps, swizzle, 384, 20, 128, 9, c0, 14});
      check_load({kSixGaps, swizzle, 384, 20, 128, 9, c0, -2});
    }
  check_load({kFourGaps, 4, 256, 20, 128, 16, 128, 0});
  check_load({kFour, 0, 70, 4, 32, 4, 64, 0});  // ends inside a run of 16
}

TEST_CASE("packed elements are stored bit for bit and clipped", "[engine][tma]") {
  for (const int swizzle : {0, 3})
    for (const int32_t c0 : {0, 128, 256}) {
      CAPTURE(swizzle, c0);
      check_store({kFour, swizzle, 500, 20, 256, 9, c0, 15});
      check_store({kSixGaps, swizzle, 384, 20, 128, 9, c0, 3});
    }
}

TEST_CASE("packed tensor maps keep their rules", "[engine][tma]") {
  CHECK(refusal({kFour, 3, 130, 4, 64, 4, 0, 0}) == "");
  CHECK(has(refusal({kFour, 3, 131, 4, 64, 4, 0, 0}), "globalDim[0] is 131"));
  CHECK(has(refusal({kFour, 3, 256, 4, 48, 4, 0, 0}), "24 bytes"));
  CHECK(has(refusal({kFour, 2, 256, 4, 256, 4, 0, 0}), "more than the 64 bytes"));
  CHECK(refusal({kFourGaps, 3, 256, 4, 128, 4, 0, 0}) == "");
  CHECK(has(refusal({kFourGaps, 3, 256, 4, 64, 4, 0, 0}), "boxDim[0] is 64"));
  CHECK(has(refusal({kFourGaps, 3, 192, 4, 128, 4, 0, 0}), "globalDim[0] is 192"));
  CHECK(has(refusal({kFourGaps, 2, 256, 4, 128, 4, 0, 0}), "no swizzle 2"));
  CHECK(has(refusal({kFourGaps, 6, 256, 4, 128, 4, 0, 0}), "no swizzle 6"));
  CHECK(refusal({kSixGaps, 6, 256, 4, 128, 4, 0, 0}) == "");
  CHECK(has(refusal({kSixGaps, 3, 256, 4, 128, 4, 0, 0}, 16), "multiple of 32"));
  Copied gaps({kFourGaps, 0, 256, 4, 128, 4, 64, 0});
  mbarrier_init(gaps.m.warp(), 1024, 1);
  CHECK(has(fault_of([&] { tma_load(gaps.m.warp(), 0, gaps.copy); }), "coordinate 0 is 64"));
  gaps.copy.coordinates[0] = 0;
  CHECK(has(fault_of([&] { tma_store(gaps.m.warp(), 0, gaps.copy); }), "for loads only"));
  gaps.m.cta().tensor_memory.reset();
  CHECK(has(fault_of([&] { tma_load(gaps.m.warp(), 0, gaps.copy); }), "sm_100"));
}

// CUTLASS 4.x clears bit 21 of the second word of a map of a small tensor.
TEST_CASE("a tensor map keeps its meaning when a program clears bits of its second word", "[engine][tma]") {
  Copied patched({kFour, 0, 256, 4, 64, 4, 0, 0});
  const TensorMap before = encode({kFour, 0, 256, 4, 64, 4, 0, 0}, 0x7fffffffffe0);
  uint64_t words[16];
  std::memcpy(words, &before, sizeof words);
  words[1] = 0;
  std::memcpy(reinterpret_cast<void*>(patched.copy.map), words, sizeof words);
  const TensorMap after = load_tensor_map(patched.m.grid, patched.copy.map);
  CHECK(std::memcmp(&before, &after, sizeof after) == 0);
  CHECK(words[0] == 0x7fffffffffe0);
}
