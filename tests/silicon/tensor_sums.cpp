// How wgmma and mma.sync form their sums: one instruction on operands that are hard on it, a CTA a draw.
// A of wgmma comes from registers and B from shared memory without swizzle; layouts are wgmma_layouts'
// subject.
#include <cstring>

#include "operands.hpp"
#include "pieces.hpp"
#include "tensor_operands.hpp"

namespace mxfa::silicon {
namespace {

struct Multiply {
  std::string d, a, b;
  int k = 0;                // 0: a whole row of 32 bytes
  std::string suffix = {};  // ".satfinite"
  int sign_a = 1, sign_b = 1;
  int chain = 1;  // instructions on the same accumulators (wgmma)
  int draws = 32;
  bool low_bits = false;  // of tf32: the 13 bits below the mantissa are set at random
};

std::string type_name(const Multiply& m) { return m.d + "." + m.a + "." + m.b; }

Profile profile_of(int draw) { return static_cast<Profile>(draw % static_cast<int>(Profile::Count)); }

// Rows of elements along K, each drawn with a view of its neighbour.
std::vector<uint32_t> rows_of(const Element& e, Profile profile, Random& random, int rows, int k,
                              uint32_t (*draw)(const Element&, Profile, Random&, int, uint32_t),
                              bool low_bits = false) {
  std::vector<uint32_t> values(static_cast<size_t>(rows * k));
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < k; ++i) {
      uint32_t& value = values[static_cast<size_t>(row * k + i)];
      value = draw(e, profile, random, i, i ? (&value)[-1] : 0);
    }
  for (uint32_t& value : values)
    if (low_bits) value |= random.below(8192);
  return values;
}

// Register j of a lane of an operand with rows g + 8 (j & 1): the elements along K it packs.
uint32_t packed(const Element& e, const std::vector<uint32_t>& rows, int k, int row, int lane, int quarter) {
  uint32_t word = 0;
  for (int i = 0; i < e.per_register(); ++i) {
    const int at = e.per_register() * (lane % 4 + 4 * quarter) + i;
    word |= rows[static_cast<size_t>(row * k + at)] << (e.bits == 32 ? 0 : e.bits * i);
  }
  return word;
}

uint32_t draw_accumulator(const Multiply& m, Profile profile, Random& random) {
  if (m.d != "f16") return draw_c(element_of(m.d == "s32" ? "s8" : "f32"), profile, random);
  const uint32_t low = draw_c(element_of("f16"), profile, random);
  return low | draw_c(element_of("f16"), profile, random) << 16;
}

// ---- wgmma: m64n8
Words wgmma_operands(const Multiply& m, uint64_t seed) {
  const Element a = element_of(m.a), b = element_of(m.b);
  const int count = m.d == "f16" ? 2 : 4, k = a.k();
  Words in;
  for (int draw = 0; draw < m.draws; ++draw) {
    Random random(seed * 1000 + static_cast<uint64_t>(draw));
    const Profile profile = profile_of(draw);
    const auto a_rows = rows_of(a, profile, random, 64, k, draw_a, m.low_bits);
    for (int thread = 0; thread < 128; ++thread)
      for (int j = 0; j < 4; ++j)
        in.push_back(
            packed(a, a_rows, k, thread / 32 * 16 + thread % 32 / 4 + 8 * (j & 1), thread % 32, j >> 1));
    for (int link = 0; link < m.chain; ++link) {
      const auto b_rows = rows_of(b, profile, random, 8, k, draw_b, m.low_bits);
      uint8_t tile[256];
      for (int row = 0; row < 8; ++row)
        for (int i = 0; i < k; ++i) {
          const int byte = i * b.bits / 8;
          std::memcpy(tile + byte / 16 * 128 + row * 16 + byte % 16,
                      &b_rows[static_cast<size_t>(row * k + i)], static_cast<size_t>(b.bits / 8));
        }
      const size_t at = in.size();
      in.resize(at + 64);
      std::memcpy(&in[at], tile, 256);
    }
    for (int i = 0; i < 128 * count; ++i) in.push_back(draw_accumulator(m, profile, random));
  }
  return in;
}

Kernel wgmma_kernel(const Multiply& m) {
  const int count = m.d == "f16" ? 2 : 4, b_words = 64 * m.chain, words = 512 + b_words + 128 * count;
  const bool sixteen = element_of(m.a).bits == 16, integer = m.d == "s32";
  std::string body = fmt::format(
      "  .shared .align 128 .b8 tile[{}];\n  .reg .b32 %d<4>, %a<4>;\n  mul.lo.u32 %r1, %cta, {};\n"
      "  mad.wide.u32 %in, %r1, 4, %in;\n  mad.wide.u32 %w1, %thread, 16, %in;\n  mov.u32 %r90, tile;\n"
      "  ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%w1];\n  mad.wide.u32 %w2, %thread, 4, %in;\n"
      "  mad.lo.u32 %r2, %thread, 4, %r90;\n",
      256 * m.chain, words);
  body += fmt::format("  setp.lt.u32 %p1, %thread, {};\n", std::min(b_words, 128));
  for (int part = 0; part < b_words; part += 128)
    body += fmt::format("  @%p1 ld.global.b32 %r3, [%w2+{}];\n  @%p1 st.shared.b32 [%r2+{}], %r3;\n",
                        2048 + 4 * part, 4 * part);
  body += fmt::format("  mad.wide.u32 %w3, %thread, {}, %in;\n", 4 * count);
  for (int i = 0; i < count; ++i)
    body += fmt::format("  ld.global.b32 %d{}, [%w3+{}];\n", i, (512 + b_words + i) * 4);
  body +=
      "  fence.proxy.async.shared::cta;\n  bar.sync 0;\n  shr.u32 %r4, %r90, 4;\n  and.b32 %r4, %r4, "
      "0x3fff;\n"
      "  or.b32 %r4, %r4, 0x00080000;\n  mov.u32 %r5, 0x00000008;\n  mov.b64 %w4, {%r4, %r5};\n"
      "  wgmma.fence.sync.aligned;\n";
  for (int link = 0; link < m.chain; ++link) {
    body += fmt::format("  wgmma.mma_async.sync.aligned.m64n8k{}.{}{} {}, {}, %w4, 1", element_of(m.a).k(),
                        type_name(m), m.suffix, register_list("%d", count), register_list("%a", 4));
    if (!integer) body += fmt::format(", {}, {}", m.sign_a, m.sign_b);
    if (sixteen) body += ", 0";
    body += ";\n  add.u64 %w4, %w4, 16;\n";
  }
  body += "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n";
  body += fmt::format(
      "  mul.lo.u32 %r6, %cta, 128;\n  add.u32 %r6, %r6, %thread;\n  mad.wide.u32 %w5, %r6, {}, %out;\n",
      4 * count);
  for (int i = 0; i < count; ++i) body += fmt::format("  st.global.b32 [%w5+{}], %d{};\n", 4 * i, i);
  return {body, 128, static_cast<unsigned>(m.draws)};
}

void add_wgmma(Programs& programs, const Multiply& m, const std::string& name = {}) {
  programs.push_back({fmt::format("tensor_sums/wgmma.{}{}", type_name(m), name), [=](Machine& machine) {
                        const size_t count = m.d == "f16" ? 2 : 4;
                        return machine.run(wgmma_kernel(m), wgmma_operands(m, 61),
                                           static_cast<size_t>(m.draws) * 128 * count);
                      }});
}

// ---- mma.sync: m16n8
void add_mma(Programs& programs, Multiply m) {
  const Element a = element_of(m.a);
  if (!m.k) m.k = a.k();
  m.draws = 64;
  const int a_count = m.k * a.bits / 64, b_count = a_count / 2, count = m.d == "f16" ? 2 : 4;
  programs.push_back(
      {fmt::format("tensor_sums/mma.m16n8k{}.{}{}{}", m.k, type_name(m), m.suffix,
                   m.low_bits ? ".low_bits" : ""),
       [=](Machine& machine) {
         const Element b = element_of(m.b);
         Words in;
         for (int draw = 0; draw < m.draws; ++draw) {
           Random random(71000 + static_cast<uint64_t>(draw));
           const Profile profile = profile_of(draw);
           const auto a_rows = rows_of(a, profile, random, 16, m.k, draw_a, m.low_bits),
                      b_rows = rows_of(b, profile, random, 8, m.k, draw_b, m.low_bits);
           for (int lane = 0; lane < 32; ++lane) {
             for (int j = 0; j < 4; ++j)
               in.push_back(j < a_count ? packed(a, a_rows, m.k, lane / 4 + 8 * (j & 1), lane, j >> 1) : 0);
             for (int j = 0; j < 2; ++j)
               in.push_back(j < b_count ? packed(b, b_rows, m.k, lane / 4, lane, j) : 0);
             for (int i = 0; i < 4; ++i) in.push_back(draw_accumulator(m, profile, random));
           }
         }
         std::string body = "  mad.lo.u32 %r50, %cta, 32, %lane;\n  mad.wide.u32 %w1, %r50, 40, %in;\n";
         for (int i = 0; i < 10; ++i) body += fmt::format("  ld.global.b32 %r{}, [%w1+{}];\n", i, 4 * i);
         body +=
             fmt::format("  mma.sync.aligned.m16n8k{}.row.col{}.{}.{} {}, {}, {}, {};\n", m.k, m.suffix,
                         type_name(m), m.d, register_list("%r", count, 20), register_list("%r", a_count, 0),
                         register_list("%r", b_count, 4), register_list("%r", count, 6));
         body += fmt::format("  mad.wide.u32 %w2, %r50, {}, %out;\n", 4 * count);
         for (int i = 0; i < count; ++i)
           body += fmt::format("  st.global.b32 [%w2+{}], %r{};\n", 4 * i, 20 + i);
         return machine.run({body, 32, static_cast<unsigned>(m.draws)}, in,
                            static_cast<size_t>(m.draws * 32 * count));
       }});
}

}  // namespace

void add_tensor_sums(Programs& programs) {
  const std::vector<Multiply> wgmma = {
      {"f32", "bf16", "bf16"}, {"f32", "f16", "f16"},   {"f16", "f16", "f16"},   {"f32", "tf32", "tf32"},
      {"f32", "e4m3", "e4m3"}, {"f32", "e4m3", "e5m2"}, {"f32", "e5m2", "e4m3"}, {"f32", "e5m2", "e5m2"},
      {"f16", "e4m3", "e4m3"}, {"f16", "e5m2", "e5m2"}, {"s32", "s8", "s8"},     {"s32", "u8", "u8"},
      {"s32", "s8", "u8"},     {"s32", "u8", "s8"}};
  for (const Multiply& m : wgmma) add_wgmma(programs, m);
  for (const char* type : {"bf16", "f16", "tf32", "e4m3"}) {
    Multiply m{"f32", type, type};
    m.sign_a = -1;
    add_wgmma(programs, m, ".negated_a");
    m.sign_a = 1, m.sign_b = -1;
    add_wgmma(programs, m, ".negated_b");
    m.sign_b = 1, m.chain = 4;
    add_wgmma(programs, m, ".chain");
  }
  Multiply saturating{"s32", "s8", "s8"};
  saturating.suffix = ".satfinite";
  add_wgmma(programs, saturating, ".satfinite");
  Multiply low{"f32", "tf32", "tf32"};
  low.low_bits = true;
  add_wgmma(programs, low, ".low_bits");
  Multiply chain16{"f16", "f16", "f16"};
  chain16.chain = 4;
  add_wgmma(programs, chain16, ".chain");

  for (const int k : {8, 16}) {
    add_mma(programs, {"f32", "bf16", "bf16", k});
    add_mma(programs, {"f32", "f16", "f16", k});
    add_mma(programs, {"f16", "f16", "f16", k});
  }
  for (const int k : {4, 8}) add_mma(programs, {"f32", "tf32", "tf32", k});
  low.k = 8;
  add_mma(programs, low);
  for (const char* a : {"e4m3", "e5m2"})
    for (const char* b : {"e4m3", "e5m2"}) add_mma(programs, {"f32", a, b, 32});
  for (const int k : {16, 32})
    for (const char* a : {"s8", "u8"})
      for (const char* b : {"s8", "u8"}) add_mma(programs, {"s32", a, b, k});
  add_mma(programs, {"s32", "s8", "s8", 32, ".satfinite"});
}

}  // namespace mxfa::silicon
