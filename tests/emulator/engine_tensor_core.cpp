// tcgen05.mma, cp and commit: layouts, scales, order.
#include <nlohmann/json.hpp>
#include <random>

#include "emulator/engine_harness.hpp"
#include "engines/matrix_descriptor.hpp"
#include "engines/small_floats.hpp"
#include "memory/tensor_map.hpp"
#include "support/vectors.hpp"

using namespace mxfa::emulator;
using namespace mxfa::emulator::test;
using mxfa::reference::load_vectors;
using nlohmann::json;

namespace {

void allocate(Machine& m) { REQUIRE(tcgen05_alloc(m.warp(), 1024, 512, 1)); }

float result(Machine& m, uint32_t lane, uint32_t column) {
  return std::bit_cast<float>(m.cta().tensor_memory->word(lane, column));
}

constexpr uint32_t kIdescBF16 = 1u << 4 | 1u << 7 | 1u << 10;  // f32 <- bf16 x bf16
uint32_t size_field(uint32_t m, uint32_t n) { return n / 8 << 17 | m / 16 << 24; }

}  // namespace

TEST_CASE("accumulators lie where the layout tables say", "[engine][tcgen05]") {
  // D[i][j] = i * 1 + 1 * 256 j, exact in bf16 and f32.
  for (const uint32_t rows : {64u, 128u})
    for (const uint32_t lane0 : {0u, 16u}) {
      if (rows == 128 && lane0) continue;
      Machine m;
      allocate(m);
      const uint32_t n = 64;
      const MatrixDescriptor a = decode_matrix(matrix(0x2000, 2048, 128, 0), "A"),
                             b = decode_matrix(matrix(0x8000, 2048, 128, 0), "B");
      const auto put = [&](uint32_t offset, float x) {
        const uint16_t h = float_to_bf16(x);
        std::memcpy(m.shared(offset), &h, 2);
      };
      for (uint32_t r = 0; r < 128; ++r)
        for (uint32_t k = 0; k < 16; ++k) {
          put(element_offset(a, 16, false, r, k), k == 0 ? static_cast<float>(r) : k == 1 ? 1.0f : 0.0f);
          put(element_offset(b, 16, false, r, k), k == 0   ? 1.0f
                                                  : k == 1 ? static_cast<float>(256 * r)
                                                           : 0.0f);
        }
      TensorMma mma;
      mma.d = lane0 << 16 | 32;
      mma.instruction = kIdescBF16 | size_field(rows, n);
      mma.a_descriptor = matrix(0x2000, 2048, 128, 0);
      mma.b_descriptor = matrix(0x8000, 2048, 128, 0);
      tcgen05_mma(m.warp(), 0, mma);
      for (uint32_t i = 0; i < rows; ++i)
        for (uint32_t j = 0; j < n; ++j) {
          const uint32_t lane = rows == 128 ? i : lane0 + 32 * (i / 16) + i % 16;
          if (result(m, lane, 32 + j) != static_cast<float>(i + 256 * j))
            FAIL_CHECK("M " << rows << " row " << i << " column " << j);
        }
      CHECK(m.cta().tensor_memory->word(rows == 128 ? 0 : lane0 ^ 16, 32 + (rows == 128 ? n : 0)) ==
            0xffffffff);
      if (lane0 == 0)
        for (const json& v : load_vectors("blackwell_isa.json")["accumulator"])
          if (v["cg"] == 1 && v["ws"] == false && v["M"] == rows && v["N"] == n) {
            INFO(v.dump());
            CHECK(result(m, v["cta_lane_col"][1], 32 + v["cta_lane_col"][2].get<uint32_t>()) ==
                  static_cast<float>(v["i"].get<uint32_t>() + 256 * v["j"].get<uint32_t>()));
          }
    }
}

TEST_CASE("tcgen05.cp writes scale atoms to all four quarters", "[engine][tcgen05]") {
  Machine m;
  allocate(m);
  for (uint32_t i = 0; i < 512; ++i) *m.shared(0x800 + i) = static_cast<uint8_t>(i * 7 + i / 256);
  tcgen05_cp(m.warp(), 0, TmemCopyShape::S32x128b, 100, matrix(0x800, 0, 128, 0), 1);
  for (const json& v : load_vectors("blackwell_isa.json")["sf_atom"])
    for (const uint32_t lane : v["tmem_lanes"].get<std::vector<uint32_t>>()) {
      const uint32_t at = v["byte_in_512B"],
                     word = m.cta().tensor_memory->word(lane, 100 + v["tmem_col"].get<uint32_t>());
      CHECK((word >> 8 * v["byte_in_word"].get<uint32_t>() & 255) == *m.shared(0x800 + at));
    }
}

TEST_CASE("tcgen05.cp places the rows of every shape", "[engine][tcgen05]") {
  // Row r of the source holds the words 16 r + w.
  const struct {
    TmemCopyShape shape;
    uint32_t rows, words;
    std::vector<uint32_t> (*lanes)(uint32_t row);
  } shapes[] = {
      {TmemCopyShape::S128x256b, 128, 8, [](uint32_t r) { return std::vector<uint32_t>{r}; }},
      {TmemCopyShape::S128x128b, 128, 4, [](uint32_t r) { return std::vector<uint32_t>{r}; }},
      {TmemCopyShape::S4x256b, 4, 8, [](uint32_t r) { return std::vector<uint32_t>{32 * r}; }},
      {TmemCopyShape::S64x128b_02_13, 64, 4,
       [](uint32_t r) {
         return std::vector<uint32_t>{r, r + 64};
       }},
      {TmemCopyShape::S64x128b_01_23, 64, 4,
       [](uint32_t r) {
         return r < 32 ? std::vector<uint32_t>{r, r + 32} : std::vector<uint32_t>{r + 32, r + 64};
       }},
      {TmemCopyShape::S32x128b, 32, 4,
       [](uint32_t r) {
         return std::vector<uint32_t>{r, r + 32, r + 64, r + 96};
       }},
  };
  for (const auto& s : shapes) {
    Machine m;
    allocate(m);
    for (uint32_t r = 0; r < s.rows; ++r)
      for (uint32_t w = 0; w < s.words; ++w) {
        const uint32_t value = 16 * r + w, offset = r % 8 * 16 + r / 8 * 128 + w / 4 * 4096 +
                                                    w % 4 * 4;  // no swizzle, LBO 4096, SBO 128
        std::memcpy(m.shared(0x2000 + offset), &value, 4);
      }
    tcgen05_cp(m.warp(), 0, s.shape, 64, matrix(0x2000, 4096, 128, 0), 1);
    std::vector<bool> written(128);
    for (uint32_t r = 0; r < s.rows; ++r)
      for (const uint32_t lane : s.lanes(r)) {
        written[lane] = true;
        for (uint32_t w = 0; w < s.words; ++w) CHECK(m.cta().tensor_memory->word(lane, 64 + w) == 16 * r + w);
        CHECK(m.cta().tensor_memory->word(lane, 64 + s.words) == 0xffffffff);
      }
    for (uint32_t lane = 0; lane < 128; ++lane)
      if (!written[lane]) CHECK(m.cta().tensor_memory->word(lane, 64) == 0xffffffff);
  }
}

TEST_CASE("tiles travel through TMA swizzles and descriptors in both majors", "[engine][tcgen05]") {
  // Values are small integers: every product sum is exact, any misplaced element shows.
  std::mt19937 random(11);
  for (const int bits : {8, 16})
    for (const uint32_t mode : {2u, 4u, 6u})
      for (const bool a_mn : {false, true})
        for (const bool b_mn : {false, true}) {
          const uint32_t span = mode == 2   ? 128
                                : mode == 4 ? 64
                                            : 32,
                         bytes = static_cast<uint32_t>(bits) / 8;
          const uint32_t rows = 128, n = 128, depth = 128 / bytes, step = 32 / bytes;
          const uint32_t row_bytes = 128 * bytes, depth_bytes = depth * bytes;
          Machine m;
          allocate(m);
          constexpr uint16_t kE4M3[] = {0x00, 0x38, 0x40, 0xb8},
                             kBF16[] = {0x0000, 0x3f80, 0x4000, 0xbf80};  // 0, 1, 2, -1
          const auto encode = [&](int x) { return bits == 8 ? kE4M3[x] : kBF16[x]; };
          const auto real = [](int x) { return x == 3 ? -1 : x; };
          std::vector<int> a(rows * depth), b(n * depth);
          for (int& x : a) x = static_cast<int>(random() % 4);
          for (int& x : b) x = static_cast<int>(random() % 4);
          // Tensor in global memory: K-major [row][k] or MN-major [k][row]; boxes of `span` bytes by all
          // rows, one after another.
          const auto load = [&](const std::vector<int>& tile, bool mn, uint32_t shared) {
            const uint32_t inner_bytes = mn ? row_bytes : depth_bytes, outer = mn ? depth : 128;
            const uint64_t data = m.arena.allocate(inner_bytes * outer);
            for (uint32_t r = 0; r < 128; ++r)
              for (uint32_t k = 0; k < depth; ++k) {
                const uint16_t x = encode(tile[r * depth + k]);
                std::memcpy(reinterpret_cast<uint8_t*>(data) +
                                (mn ? k * row_bytes + r * bytes : r * depth_bytes + k * bytes),
                            &x, bytes);
              }
            const uint64_t dims[] = {inner_bytes / bytes, outer}, strides[] = {inner_bytes};
            const uint32_t box[] = {span / bytes, outer}, ones[] = {1, 1};
            TiledTensor t;
            t.type = bits == 8 ? 0 : 9, t.rank = 2, t.address = data, t.dims = dims, t.strides = strides,
            t.box = box, t.element_strides = ones;
            t.swizzle = mode == 2 ? 3 : mode == 4 ? 2 : 1;
            TensorMap map;
            std::string error;
            REQUIRE(encode_tiled(t, &map, &error) == 0);
            const uint64_t at = m.arena.allocate(sizeof(map));
            std::memcpy(reinterpret_cast<void*>(at), &map, sizeof(map));
            TensorCopy copy;
            copy.map = at, copy.rank = 2, copy.mbarrier = 1032;
            for (uint32_t box_index = 0; box_index < inner_bytes / span; ++box_index) {
              mbarrier_init(m.warp(), 1032, 1);
              copy.coordinates = {static_cast<int32_t>(box_index * span / bytes), 0};
              copy.shared = shared + box_index * span * outer;
              tma_load(m.warp(), 0, copy);
            }
          };
          load(a, a_mn, 0x4000);
          load(b, b_mn, 0x10000);
          const auto descriptor = [&](bool mn, uint32_t shared, uint32_t q) {
            // K-major: column tiles of `span` bytes are 128 * span apart; MN-major: LBO is the distance of
            // those tiles, K advances by rows.
            if (!mn) return matrix(shared + q * 32 / span * span * 128 + q * 32 % span, 0, 8 * span, mode);
            return matrix(shared + q * step * span, span * depth, 8 * span, mode);
          };
          TensorMma mma;
          mma.kind = bits == 8 ? MmaKind::F8F6F4 : MmaKind::F16;
          mma.instruction = (bits == 8 ? 1u << 4 : kIdescBF16) | size_field(rows, n) | (a_mn ? 1u << 15 : 0) |
                            (b_mn ? 1u << 16 : 0);
          for (uint32_t q = 0; q < depth / step; ++q) {
            mma.a_descriptor = descriptor(a_mn, 0x4000, q);
            mma.b_descriptor = descriptor(b_mn, 0x10000, q);
            mma.accumulate = q != 0;
            tcgen05_mma(m.warp(), 0, mma);
          }
          int wrong = 0;
          for (uint32_t i = 0; i < rows; ++i)
            for (uint32_t j = 0; j < n; ++j) {
              int sum = 0;
              for (uint32_t k = 0; k < depth; ++k) sum += real(a[i * depth + k]) * real(b[j * depth + k]);
              wrong += result(m, i, j) != static_cast<float>(sum);
            }
          INFO("bits " << bits << " swizzle " << mode << " A " << (a_mn ? "MN" : "K") << " B "
                       << (b_mn ? "MN" : "K"));
          CHECK(wrong == 0);
        }
}

TEST_CASE("block scales come from the selected byte of each row, from A in either memory",
          "[engine][tcgen05]") {
  std::mt19937 random(5);
  for (const uint32_t n : {8u, 64u, 200u, 256u})
    for (const uint32_t id : {0u, 1u, 2u, 3u})
      for (const bool in_tmem : {false, true}) {
        Machine m;
        allocate(m);
        TensorMemory& tmem = *m.cta().tensor_memory;
        std::vector<uint32_t> sfa(128), sfb(256);
        for (uint32_t& s : sfa) s = 127 - 20 + random() % 40;
        for (uint32_t& s : sfb) s = 127 - 20 + random() % 40;
        const uint32_t ida = id, idb = 3 - id, ca = 300, cb = 308;
        // Every other byte of the scale words is NaN: reading it would show.
        for (uint32_t quarter = 0; quarter < 4; ++quarter)
          for (uint32_t r = 0; r < 256; ++r) {
            if (r < 128)
              tmem.word(32 * quarter + r % 32, ca + r / 32) = 0xffffffff ^ ((sfa[r] ^ 255) << 8 * ida);
            tmem.word(32 * quarter + r % 32, cb + r / 32) = 0xffffffff ^ ((sfb[r] ^ 255) << 8 * idb);
          }
        const MatrixDescriptor a = decode_matrix(matrix(0x2000, 4096, 128, 0), "A"),
                               b = decode_matrix(matrix(0x8000, 8192, 128, 0), "B");
        std::vector<int> va(128 * 32), vb(256 * 32);
        const uint8_t codes[4] = {0x00, 0x38, 0x40, 0xb8};  // 0, 1, 2, -1
        const int values[4] = {0, 1, 2, -1};
        for (uint32_t r = 0; r < 256; ++r)
          for (uint32_t k = 0; k < 32; ++k) {
            const uint32_t x = random() % 4, y = random() % 4;
            if (r < 128) {
              va[r * 32 + k] = values[x];
              *m.shared(element_offset(a, 8, false, r, k)) = codes[x];
              if (in_tmem) {
                uint32_t& word = tmem.word(r, 400 + k / 4);
                word = (word & ~(255u << k % 4 * 8)) | uint32_t{codes[x]} << k % 4 * 8;
              }
            }
            vb[r * 32 + k] = values[y];
            *m.shared(element_offset(b, 8, false, r, k)) = codes[y];
          }
        TensorMma mma;
        mma.kind = MmaKind::MXF8F6F4;
        mma.instruction = size_field(128, n) | 1u << 23 | ida << 29 | idb << 4;
        mma.a_in_tmem = in_tmem;
        mma.a_tmem = 400;
        mma.a_descriptor = matrix(0x2000, 4096, 128, 0);
        mma.b_descriptor = matrix(0x8000, 8192, 128, 0);
        mma.scale_a = ca | 1u << 30;  // bits [30:32) are CUTLASS's business
        mma.scale_b = cb;
        tcgen05_mma(m.warp(), 0, mma);
        int wrong = 0;
        for (uint32_t i = 0; i < 128; ++i)
          for (uint32_t j = 0; j < n; ++j) {
            int sum = 0;
            for (uint32_t k = 0; k < 32; ++k) sum += va[i * 32 + k] * vb[j * 32 + k];
            wrong += result(m, i, j) !=
                     std::ldexp(static_cast<float>(sum), static_cast<int>(sfa[i] + sfb[j]) - 254);
          }
        INFO("N " << n << " id " << id << " TS " << in_tmem);
        CHECK(wrong == 0);
        CHECK(tmem.word(0, n) == (n == 256 ? 0xffffffff : tmem.word(1, n)));

        tmem.word(64 + 5, cb) ^= 1u << 8 * idb;
        CHECK(has(fault_of([&] { tcgen05_mma(m.warp(), 0, mma); }),
                  "the scale of row 5 of B differs between lanes 5 and 69"));
      }
}

TEST_CASE("i8, negation, disabled lanes and the scaled accumulator", "[engine][tcgen05]") {
  Machine m;
  allocate(m);
  TensorMemory& tmem = *m.cta().tensor_memory;
  std::memset(m.shared(0x2000), 0, 0x8000);
  const MatrixDescriptor a = decode_matrix(matrix(0x2000, 4096, 128, 0), "A"),
                         b = decode_matrix(matrix(0x6000, 4096, 128, 0), "B");
  const auto put = [&](const MatrixDescriptor& d, uint32_t r, uint32_t k, uint8_t x) {
    *m.shared(element_offset(d, 8, false, r, k)) = x;
  };
  put(a, 3, 0, 0x80), put(a, 3, 31, 5), put(b, 2, 0, 0x7f),
      put(b, 2, 31, 0xfe);  // s8: -128 * 127 + 5 * -2; u8: 128 * 127 + 5 * 254
  TensorMma mma;
  mma.kind = MmaKind::I8;
  mma.a_descriptor = matrix(0x2000, 4096, 128, 0), mma.b_descriptor = matrix(0x6000, 4096, 128, 0);
  mma.instruction = 2u << 4 | 1u << 7 | 1u << 10 | size_field(128, 16);
  tcgen05_mma(m.warp(), 0, mma);
  CHECK(static_cast<int32_t>(tmem.word(3, 2)) == -128 * 127 - 10);
  mma.instruction = 2u << 4 | size_field(128, 16);
  tcgen05_mma(m.warp(), 0, mma);
  CHECK(static_cast<int32_t>(tmem.word(3, 2)) == 128 * 127 + 5 * 254);
  tmem.word(3, 2) = 0x7fffffff;
  mma.accumulate = true;
  mma.instruction |= 1u << 3;  // saturate
  tcgen05_mma(m.warp(), 0, mma);
  CHECK(tmem.word(3, 2) == 0x7fffffff);

  std::memset(m.shared(0x2000), 0, 0x8000);
  put(a, 3, 0, 0x80), put(a, 3, 1, 0x3f), put(b, 2, 0, 0x80), put(b, 2, 1, 0x3f);  // bf16 1 x 1
  mma.kind = MmaKind::F16;
  mma.instruction = kIdescBF16 | size_field(128, 16) | 1u << 13;
  tmem.word(3, 2) = std::bit_cast<uint32_t>(48.0f);
  mma.scale_input_d = 4;
  tcgen05_mma(m.warp(), 0, mma);
  CHECK(result(m, 3, 2) == 2.0f);  // 48 / 16 - 1
  mma.disable_lanes = std::array<uint32_t, 8>{1u << 3};
  tcgen05_mma(m.warp(), 0, mma);
  CHECK(result(m, 3, 2) == 2.0f);
  CHECK(result(m, 4, 2) == 0.0f);
}

TEST_CASE("the tensor pipe runs late, in order, and commit tells when", "[engine][tcgen05]") {
  Machine m(1, Schedule::Kind::Lazy);
  allocate(m);
  mbarrier_init(m.warp(), 1032, 1);
  std::memset(m.shared(0x2000), 0, 0x8000);
  TensorMma mma;
  mma.instruction = kIdescBF16 | size_field(128, 16);
  mma.a_descriptor = matrix(0x2000, 4096, 128, 0), mma.b_descriptor = matrix(0x6000, 4096, 128, 0);
  tcgen05_mma(m.warp(), 0, mma);
  tcgen05_cp(m.warp(), 0, TmemCopyShape::S32x128b, 0, matrix(0x2000, 0, 128, 0),
             1);  // overwrites D afterwards
  tcgen05_commit(m.warp(), 0, 1032, std::nullopt, 1);
  CHECK(m.cta().tensor_memory->word(0, 0) == 0xffffffff);
  CHECK(engines_at_exit(m.cta()).size() == 2);
  const uint16_t one = 0x3f80;
  std::memcpy(m.shared(0x2000), &one, 2), std::memcpy(m.shared(0x6000), &one, 2);  // operands are read late
  m.cluster.events.fire_one();
  CHECK(result(m, 0, 0) == 1.0f);
  CHECK_FALSE(mbarrier_test_parity(m.warp(), 1032, 0));
  m.fire_all();
  CHECK(m.cta().tensor_memory->word(0, 0) == 0x3f80);
  CHECK(mbarrier_test_parity(m.warp(), 1032, 0));
}

TEST_CASE("an mma that runs after its columns were given back is a fault", "[engine][tcgen05]") {
  Machine m(1, Schedule::Kind::Lazy);
  allocate(m);
  TensorMma mma;
  mma.instruction = kIdescBF16 | size_field(128, 16);
  mma.a_descriptor = matrix(0x2000, 4096, 128, 0), mma.b_descriptor = matrix(0x6000, 4096, 128, 0);
  tcgen05_mma(m.warp(), 0, mma);
  tcgen05_dealloc(m.warp(), 0, 512, 1);
  CHECK(has(fault_of([&] { m.fire_all(); }), "are not allocated"));
}

TEST_CASE("an mma outside its memory is a fault with a sentence", "[engine][tcgen05]") {
  Machine m;
  REQUIRE(tcgen05_alloc(m.warp(), 1024, 128, 1));
  TensorMma mma;
  mma.instruction = kIdescBF16 | size_field(128, 64);
  mma.a_descriptor = matrix(0x2000, 4096, 128, 0), mma.b_descriptor = matrix(0x6000, 4096, 128, 0);
  const auto run = [&](auto change) {
    TensorMma x = mma;
    change(x);
    return fault_of([&] { tcgen05_mma(m.warp(), 0, x); });
  };
  CHECK(run([](TensorMma&) {}).empty());
  CHECK(has(run([](TensorMma& x) { x.d = 96; }), "D: tensor-memory columns [96, 160)"));
  CHECK(has(run([](TensorMma& x) { x.d = 1u << 16; }), "its lane must be 0"));
  CHECK(has(run([](TensorMma& x) { x.a_in_tmem = true, x.a_tmem = 124; }),
            "A: tensor-memory columns [124, 132)"));
  CHECK(has(run([](TensorMma& x) { x.a_descriptor = matrix(0, 4096, 128, 0); }), "the system reserves"));
  CHECK(has(run([](TensorMma& x) { x.b_descriptor = matrix(0x31ff0, 4096, 128, 0); }), "ends at"));
  CHECK(has(run([](TensorMma& x) {
              x.kind = MmaKind::MXF8F6F4, x.instruction = size_field(128, 64) | 1u << 23, x.scale_a = 126,
              x.scale_b = 64;
            }),
            "scales of A: tensor-memory columns [126, 130)"));
}
