// Tensor copies against an element-by-element oracle written from the text of PTX ISA 5.5 and the CUDA
// programming guide.
#include <map>
#include <random>

#include "emulator/engine_harness.hpp"
#include "memory/tensor_map.hpp"

using namespace mxfa::emulator;
using namespace mxfa::emulator::test;

namespace {

constexpr int kU8 = 0, kU16 = 1, kU32 = 2, kF32 = 7, kBF16 = 9;

struct Tensor {
  int type = kU8, swizzle = 0, fill = 0;
  std::vector<uint64_t> dims, strides;
  std::vector<uint32_t> box, element_strides;
};

TensorMap encode(const Tensor& t, uint64_t address) {
  TensorMap map;
  std::string error;
  TiledTensor args;
  args.type = t.type;
  args.rank = static_cast<uint32_t>(t.dims.size());
  args.address = address;
  args.dims = t.dims.data();
  args.strides = t.strides.data();
  args.box = t.box.data();
  const std::vector<uint32_t> ones(5, 1);
  args.element_strides = t.element_strides.empty() ? ones.data() : t.element_strides.data();
  args.swizzle = t.swizzle;
  args.oob_fill = t.fill;
  const int code = encode_tiled(args, &map, &error);
  INFO(error);
  REQUIRE(code == 0);
  return map;
}

uint64_t place(Machine& m, const TensorMap& map) {
  const uint64_t address = m.arena.allocate(sizeof(map));
  std::memcpy(reinterpret_cast<void*>(address), &map, sizeof(map));
  return address;
}

uint32_t bits(uint32_t a, int low, int count) { return a >> low & ((1u << count) - 1); }

// Table of swizzle modes: which address bits are XORed with which.
uint32_t swizzle_from_text(int mode, uint32_t a) {
  switch (mode) {
    case 1:
      return a ^ bits(a, 7, 1) << 4;
    case 2:
      return a ^ bits(a, 7, 2) << 4;
    case 3:
      return a ^ bits(a, 7, 3) << 4;
    case 4:
      return a ^ bits(a, 7, 2) << 5;
    case 5:
      return a ^ bits(a, 7, 2) << 5 ^ bits(a, 7, 1) << 3;
    case 6:
      return a ^ bits(a, 7, 1) << 6;
    default:
      return a;
  }
}

// Every byte of the box: shared offset -> what a load puts there (-1: fill), one element at a time.
std::map<uint32_t, int64_t> expected_box(const Tensor& t, const std::vector<int32_t>& c, uint32_t destination,
                                         uint32_t element) {
  const size_t rank = t.dims.size();
  std::vector<uint32_t> count(rank), i(rank, 0);
  uint32_t total = 1;
  for (size_t d = 0; d < rank; ++d) {
    const uint32_t step = d == 0 || t.element_strides.empty() ? 1 : t.element_strides[d];
    count[d] = (t.box[d] + step - 1) / step;
    total *= count[d];
  }
  std::map<uint32_t, int64_t> result;
  for (uint32_t n = 0; n < total; ++n) {
    uint32_t rest = n;
    bool inside = true;
    int64_t at = 0;
    for (size_t d = 0; d < rank; ++d) {
      i[d] = rest % count[d];
      rest /= count[d];
      const int64_t g = c[d] + static_cast<int64_t>(i[d]) *
                                   (d == 0 || t.element_strides.empty() ? 1 : t.element_strides[d]);
      inside = inside && g >= 0 && g < static_cast<int64_t>(t.dims[d]);
      at += g * (d == 0 ? element : static_cast<int64_t>(t.strides[d - 1]));
    }
    for (uint32_t b = 0; b < element; ++b)
      result[swizzle_from_text(t.swizzle, destination + n * element + b)] = inside ? at + b : -1;
  }
  return result;
}

void check_load(const Tensor& t, uint32_t element, const std::vector<int32_t>& c, uint32_t destination) {
  Machine m;
  uint64_t bytes = t.dims[0] * element;
  for (size_t d = 1; d < t.dims.size(); ++d) bytes = std::max(bytes, t.strides[d - 1] * t.dims[d]);
  const uint64_t data = m.arena.allocate(bytes);
  std::mt19937 random(7);
  for (uint64_t k = 0; k < bytes; ++k) reinterpret_cast<uint8_t*>(data)[k] = static_cast<uint8_t>(random());
  const uint64_t map = place(m, encode(t, data));
  const auto expected = expected_box(t, c, destination, element);
  const uint32_t box_bytes = static_cast<uint32_t>(expected.size());

  mbarrier_init(m.warp(), 1024, 1);
  TensorCopy copy;
  copy.map = map;
  copy.rank = static_cast<int>(t.dims.size());
  std::copy(c.begin(), c.end(), copy.coordinates.begin());
  copy.shared = destination;
  copy.mbarrier = 1024;
  std::vector<uint8_t> before(m.shared(0), m.shared(0) + m.cta().shared_size);
  tma_load(m.warp(), 0, copy);
  mbarrier_arrive(m.warp(), 1024, 1, box_bytes, false, false);
  REQUIRE(mbarrier_test_parity(m.warp(), 1024, 0));  // full box counted
  int wrong = 0;
  for (uint32_t at = 2048; at < m.cta().shared_size; ++at) {
    const auto it = expected.find(at);
    const uint8_t want = it == expected.end() ? before[at]
                         : it->second < 0     ? 0
                                              : reinterpret_cast<uint8_t*>(data)[it->second];
    wrong += *m.shared(at) != want;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("tensor loads place every byte of the box, all ranks and swizzles", "[engine][tma]") {
  check_load({kU8, 0, 0, {4096}, {}, {256}, {}}, 1, {96}, 2048);
  check_load({kU32, 0, 0, {40, 30}, {176}, {12, 7}, {}}, 4, {4, 5}, 2048 + 128);
  for (int mode = 1; mode <= 6; ++mode) {
    const uint32_t span = mode == 1 ? 32 : mode == 2 ? 64 : 128;
    INFO("swizzle " << mode);
    check_load({kU8, mode, 0, {200, 100}, {208}, {span, 64}, {}}, 1, {32, 11}, 4096);
    check_load({kBF16, mode, 0, {96, 3, 50}, {192, 576}, {span / 2, 1, 33}, {}}, 2, {0, 2, 9},
               4096 + 384);  // pattern by address
  }
  check_load({kU16, 3, 0, {64, 5, 6, 7}, {160, 800, 4800}, {64, 2, 3, 4}, {}}, 2, {0, 1, 2, 3}, 8192);
  check_load({kU8, 3, 0, {128, 4, 3, 3, 3}, {128, 512, 1536, 4608}, {128, 3, 2, 2, 2}, {}}, 1,
             {0, 2, 1, 1, 2}, 8192);
  check_load({kU16, 0, 0, {64, 40}, {128}, {16, 21}, {1, 3}}, 2, {8, 4}, 8192);  // element strides
}

TEST_CASE("elements outside the tensor are filled and still counted", "[engine][tma]") {
  for (const int32_t c0 : {-40, -8, 0, 24, 56, 64, 1000})
    for (const int32_t c1 : {-20, -3, 0, 90, 99, 100, 2000000000})
      check_load({kU16, 2, 0, {64, 100}, {128}, {32, 16}, {}}, 2, {c0, c1}, 4096);
  Machine m;
  const uint64_t data = m.arena.allocate(64 * 4);
  std::memset(reinterpret_cast<void*>(data), 0, 64 * 4);
  const uint64_t map = place(m, encode({kF32, 0, 1, {16, 4}, {64}, {16, 4}, {}}, data));
  mbarrier_init(m.warp(), 1024, 1);
  TensorCopy copy;
  copy.map = map, copy.rank = 2, copy.coordinates = {8, 3}, copy.shared = 2048, copy.mbarrier = 1024;
  tma_load(m.warp(), 0, copy);
  uint32_t word;
  std::memcpy(&word, m.shared(2048 + 4 * 7), 4);
  CHECK(word == 0);
  std::memcpy(&word, m.shared(2048 + 4 * 8), 4);
  CHECK(word == 0x7ff77ff7);
  std::memcpy(&word, m.shared(2048 + 64), 4);
  CHECK(word == 0x7ff77ff7);
}

TEST_CASE("a store is the inverse of a load and clips at the far end", "[engine][tma]") {
  for (int mode = 0; mode <= 6; ++mode) {
    Machine m;
    const uint32_t span = mode == 0 ? 48 : mode == 1 ? 32 : mode == 2 ? 64 : 128;
    const Tensor t{kU8, mode, 0, {100, 50}, {112}, {span, 20}, {}};
    const uint64_t data = m.arena.allocate(112 * 50);
    const uint64_t map = place(m, encode(t, data));
    const std::vector<int32_t> c{64, 35};
    for (uint32_t k = 0; k < span * 20; ++k) *m.shared(4096 + k) = static_cast<uint8_t>(k * 7 + k / 256);
    TensorCopy copy;
    copy.map = map, copy.rank = 2, copy.coordinates = {64, 35}, copy.shared = 4096;
    tma_store(m.warp(), 0, copy);
    std::vector<uint8_t> want(112 * 50, 0xff);
    for (const auto& [at, from] : expected_box(t, c, 4096, 1))
      if (from >= 0) want[static_cast<size_t>(from)] = *m.shared(at);
    INFO("swizzle " << mode);
    CHECK(std::memcmp(want.data(), reinterpret_cast<void*>(data), want.size()) == 0);
  }
}

TEST_CASE("ragged maps with a 64-bit wrap load and store one sequence only", "[engine][tma]") {
  // Rows of D bytes; sequence [off, off + len).  Two extra dimensions, strides 2^34 - s and s, coordinates
  // 2^30 and off + len.
  constexpr uint64_t kBig = 1ull << 30, kRow = 128, kRows = 60;
  Machine m;
  const uint64_t data = m.arena.allocate(kRow * kRows);
  for (uint64_t k = 0; k < kRow * kRows; ++k)
    reinterpret_cast<uint8_t*>(data)[k] = static_cast<uint8_t>(k / kRow);
  const Tensor t{
      kU8, 3, 0, {kRow, kBig, 0x7fffffff, 0x7fffffff}, {kRow, (1ull << 34) - kRow, kRow}, {kRow, 16, 1, 1},
      {}};
  const uint64_t map = place(m, encode(t, data));
  mbarrier_init(m.warp(), 1024, 1);
  const int off = 13, len = 21, first = 16;
  TensorCopy copy;
  copy.map = map, copy.rank = 4, copy.shared = 4096, copy.mbarrier = 1024;
  copy.coordinates = {0, static_cast<int32_t>(kBig - len + first), static_cast<int32_t>(kBig), off + len};
  tma_load(m.warp(), 0, copy);
  for (int r = 0; r < 16; ++r)
    CHECK(*m.shared(4096 + 128 * static_cast<uint32_t>(r)) == (first + r < len ? off + first + r : 0));

  std::memset(m.shared(4096), 0xaa, 2048);
  tma_store(m.warp(), 0, copy);
  for (int r = 0; r < static_cast<int>(kRows); ++r) {
    const bool stored = r >= off + first && r < off + len;
    CHECK(reinterpret_cast<uint8_t*>(data)[r * kRow + 5] == (stored ? 0xaa : r));
  }

  // One extra dimension and a shifted base: the base lies in no allocation, the rows touched do.
  const Tensor shifted{kU8, 3, 0, {kRow, kBig, 0x7fffffff}, {kRow, kRow}, {kRow, 16, 1}, {}};
  copy.map = place(m, encode(shifted, data - kBig * kRow));
  copy.rank = 3;
  copy.coordinates = {0, static_cast<int32_t>(kBig - len + first), off + len, 0, 0};
  std::memset(m.shared(4096), 0xbb, 2048);
  tma_store(m.warp(), 0, copy);
  CHECK(reinterpret_cast<uint8_t*>(data)[(off + len - 1) * kRow] == 0xbb);
  CHECK(reinterpret_cast<uint8_t*>(data)[(off + len) * kRow] == off + len);
}

TEST_CASE("gather4 takes four rows by index", "[engine][tma]") {
  Machine m;
  const uint64_t data = m.arena.allocate(128 * 40);
  for (int k = 0; k < 128 * 40; ++k) reinterpret_cast<uint8_t*>(data)[k] = static_cast<uint8_t>(k / 128);
  const uint64_t map = place(m, encode({kU8, 0, 0, {128, 40}, {128}, {64, 1}, {}}, data));
  mbarrier_init(m.warp(), 1024, 1);
  TensorCopy copy;
  copy.map = map, copy.rank = 2, copy.coordinates = {64, 7, 39, 40, 0}, copy.shared = 4096,
  copy.mbarrier = 1024, copy.gather4 = true;
  tma_load(m.warp(), 0, copy);
  CHECK(*m.shared(4096) == 7);
  CHECK(*m.shared(4096 + 64) == 39);
  CHECK(*m.shared(4096 + 128) == 0);  // row 40 is outside
  CHECK(mbarrier_describe(m.cluster, 1024) == "arrivals 0/1, tx -256, phase 0");
}

TEST_CASE("multicast delivers data and signal to every CTA of the mask", "[engine][tma]") {
  Machine m(4);
  const uint64_t data = m.arena.allocate(256);
  std::memset(reinterpret_cast<void*>(data), 0x5a, 256);
  const uint64_t map = place(m, encode({kU8, 0, 0, {256}, {}, {256}, {}}, data));
  for (int r = 0; r < 4; ++r) mbarrier_init(m.warp(0, r), m.address(1024, r), 1);
  TensorCopy copy;
  copy.map = map, copy.rank = 1, copy.shared = m.address(2048, 1), copy.mbarrier = m.address(1024, 1),
  copy.multicast = 0b1010;
  tma_load(m.warp(0, 1), 0, copy);
  for (int r = 0; r < 4; ++r) {
    CHECK(*m.shared(2048, r) == (r % 2 ? 0x5a : 0xff));
    CHECK(has(mbarrier_describe(m.cluster, m.address(1024, r)), r % 2 ? "tx -256" : "tx 0"));
  }
  // cta_group::2: the signal goes to the CTA of each pair with the parity of the barrier operand.
  copy.multicast = 0b1110;
  copy.cta_group = 2;
  copy.mbarrier = m.address(1024, 0);
  tma_load(m.warp(0, 1), 0, copy);
  CHECK(has(mbarrier_describe(m.cluster, m.address(1024, 0)), "tx -256"));
  CHECK(has(mbarrier_describe(m.cluster, m.address(1024, 2)), "tx -512"));
  copy.multicast = 0x10;
  CHECK(has(fault_of([&] { tma_load(m.warp(0, 1), 0, copy); }), "multicast mask"));
  copy.multicast.reset();
  copy.cta_group = 0;
  CHECK(has(fault_of([&] { tma_load(m.warp(0, 1), 0, copy); }), "different CTAs"));
}

TEST_CASE("a late load poisons its destination at issue", "[engine][tma]") {
  Machine m(1, Schedule::Kind::Lazy);
  const uint64_t data = m.arena.allocate(256);
  std::memset(reinterpret_cast<void*>(data), 0x11, 256);
  const uint64_t map = place(m, encode({kU8, 0, 0, {256}, {}, {256}, {}}, data));
  mbarrier_init(m.warp(), 1024, 1);
  std::memset(m.shared(2048), 0x22, 256);
  TensorCopy copy;
  copy.map = map, copy.rank = 1, copy.shared = 2048, copy.mbarrier = 1024;
  tma_load(m.warp(), 0, copy);
  mbarrier_arrive(m.warp(), 1024, 1, 256, false, false);
  CHECK(*m.shared(2048) == 0xff);
  CHECK_FALSE(mbarrier_test_parity(m.warp(), 1024, 0));
  std::memset(reinterpret_cast<void*>(data), 0x33, 256);
  REQUIRE(m.cluster.events.fire_one());
  CHECK(*m.shared(2048 + 255) == 0x33);
  CHECK(mbarrier_test_parity(m.warp(), 1024, 0));
}

TEST_CASE("tensor reductions add element by element", "[engine][tma]") {
  Machine m;
  const uint64_t data = m.arena.allocate(64 * 4);
  auto* g = reinterpret_cast<float*>(data);
  for (int i = 0; i < 64; ++i) g[i] = static_cast<float>(i);
  const uint64_t map = place(m, encode({kF32, 0, 0, {16, 4}, {64}, {8, 2}, {}}, data));
  for (uint32_t i = 0; i < 16; ++i) {
    const float x = 0.5f;
    std::memcpy(m.shared(2048 + 4 * i), &x, 4);
  }
  TensorCopy copy;
  copy.map = map, copy.rank = 2, copy.coordinates = {12, 3}, copy.shared = 2048, copy.reduce = ReduceOp::Add;
  tma_store(m.warp(), 0, copy);
  for (int i = 0; i < 64; ++i) CHECK(g[i] == static_cast<float>(i) + (i >= 60 ? 0.5f : 0.0f));
}

TEST_CASE("misuse of tensor copies is refused by name", "[engine][tma]") {
  Machine m;
  const uint64_t data = m.arena.allocate(128 * 64);
  const uint64_t map = place(m, encode({kU8, 3, 0, {128, 64}, {128}, {128, 8}, {}}, data));
  const uint64_t beyond = place(m, encode({kU8, 0, 0, {128, 65}, {128}, {128, 8}, {}}, data));
  mbarrier_init(m.warp(), 1024, 1);
  TensorCopy copy;
  copy.map = map, copy.rank = 2, copy.shared = 4096, copy.mbarrier = 1024;
  const auto load = [&](auto change) {
    TensorCopy c = copy;
    change(c);
    return fault_of([&] { tma_load(m.warp(), 0, c); });
  };
  CHECK(load([](TensorCopy&) {}).empty());
  CHECK(has(load([](TensorCopy& c) { c.shared += 16; }), "not a multiple of 128"));
  CHECK(has(load([](TensorCopy& c) { c.rank = 3; }), "addresses 3 dimensions"));
  CHECK(has(load([&](TensorCopy& c) { c.map = data; }), "holds no tensor map"));
  CHECK(has(load([](TensorCopy& c) { c.shared = 200 * 1024 - 128; }), "ends at"));
  CHECK(has(load([&](TensorCopy& c) {
              c.map = beyond, c.coordinates = {0, 60};
            }),
            "0 bytes after allocation"));
  TensorCopy store = copy;
  store.coordinates = {0, -1};
  CHECK(has(fault_of([&] { tma_store(m.warp(), 0, store); }), "must not be negative"));
  store.coordinates = {0, 0};
  store.reduce = ReduceOp::Add;
  CHECK(has(fault_of([&] { tma_store(m.warp(), 0, store); }), "UINT8"));
}

TEST_CASE("encoding refuses what the driver refuses", "[engine][tma]") {
  const uint64_t dims[5] = {128, 64, 8, 8, 8}, strides[4] = {128, 8192, 65536, 524288};
  const uint32_t box[5] = {128, 8, 1, 1, 1}, steps[5] = {1, 1, 1, 1, 1};
  TiledTensor good;
  good.type = kU8, good.rank = 2, good.address = 0x10000, good.dims = dims, good.strides = strides,
  good.box = box, good.element_strides = steps;
  const auto refusal = [&](auto change) {
    TiledTensor t = good;
    uint64_t d[5], s[4];
    uint32_t b[5], e[5];
    std::memcpy(d, dims, sizeof d), std::memcpy(s, strides, sizeof s), std::memcpy(b, box, sizeof b),
        std::memcpy(e, steps, sizeof e);
    t.dims = d, t.strides = s, t.box = b, t.element_strides = e;
    change(t, d, s, b, e);
    TensorMap map;
    std::string error;
    const int code = encode_tiled(t, &map, &error);
    return code == 0 ? std::string() : std::to_string(code) + " " + error;
  };
#define ARGS                                                                                              \
  [[maybe_unused]] auto &t, [[maybe_unused]] auto &d, [[maybe_unused]] auto &s, [[maybe_unused]] auto &b, \
      [[maybe_unused]] auto &e
  CHECK(refusal([](ARGS) {}).empty());
  CHECK(refusal([](ARGS) { t.rank = 5; }).empty());
  CHECK(refusal([](ARGS) { s[0] = (1ull << 40) - 16; }).empty());
  CHECK(refusal([](ARGS) { d[0] = 1ull << 32; }).empty());
  CHECK(has(refusal([](ARGS) { t.rank = 6; }), "1 tensorRank"));
  CHECK(has(refusal([](ARGS) { t.address = 0x10008; }), "globalAddress"));
  CHECK(has(refusal([](ARGS) { d[1] = 0; }), "globalDim[1] is 0"));
  CHECK(has(refusal([](ARGS) { d[1] = (1ull << 32) + 1; }), "globalDim[1]"));
  CHECK(has(refusal([](ARGS) { s[0] = 136; }), "globalStrides[0] is 136"));
  CHECK(has(refusal([](ARGS) { s[0] = 1ull << 40; }), "globalStrides[0]"));
  CHECK(has(refusal([](ARGS) { b[0] = 257; }), "boxDim[0] is 257"));
  CHECK(has(refusal([](ARGS) { b[0] = 120; }), "120 bytes"));
  CHECK(has(refusal([](ARGS) { b[1] = 0; }), "boxDim[1] is 0"));
  CHECK(has(refusal([](ARGS) { e[1] = 9; }), "elementStrides[1] is 9"));
  CHECK(has(refusal([](ARGS) { t.swizzle = 2; }), "more than the 64 bytes"));
  CHECK(has(refusal([](ARGS) { t.swizzle = 7; }), "swizzle 7"));
  CHECK(has(refusal([](ARGS) { t.oob_fill = 1; }), "floating-point"));
  CHECK(has(refusal([](ARGS) { t.interleave = 1; }), "801 interleaved"));
  CHECK(has(refusal([](ARGS) { t.type = 99; }), "1 tensorDataType 99"));
#undef ARGS
}
