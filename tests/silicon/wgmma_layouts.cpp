// Where wgmma finds its operands and puts its results.  Shared memory is full of random small integers, so
// sums are exact and any descriptor gives an answer: what is compared is the addresses a descriptor stands
// for.
#include <cstring>

#include "operands.hpp"
#include "pieces.hpp"
#include "tensor_operands.hpp"

namespace mxfa::silicon {
namespace {

constexpr uint32_t kShared = 96 * 1024;

struct Descriptor {
  uint32_t start = 0, leading = 0, stride = 0;  // bytes; start counts from a multiple of 1024
  int swizzle = 128;                            // bytes; 0: none
  uint64_t base = 0;                            // base offset
  uint64_t bits() const {
    const uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    return start >> 4 | uint64_t{leading >> 4} << 16 | uint64_t{stride >> 4} << 32 | base << 49 | mode << 62;
  }
};
struct Pair {
  Descriptor a, b;
};

struct Case {
  std::string d = "f32", a = "bf16", b = "bf16";
  int n = 32;
  bool registers = false, turn_a = false, turn_b = false;
  int sign_a = 1, sign_b = 1;
  std::string scale_d = "0";
  int count() const { return d == "f16" ? n / 4 : n / 2; }
};

Words small_integers(const std::string& type, uint64_t seed) {
  const Element e = element_of(type);
  std::vector<uint8_t> bytes(kShared);
  Random random(seed);
  for (size_t i = 0; i < kShared; i += static_cast<size_t>(e.bits / 8)) {
    const uint32_t raw = small_integer(e, static_cast<int>(random.below(15)) - 7);
    std::memcpy(&bytes[i], &raw, static_cast<size_t>(e.bits / 8));
  }
  Words words(kShared / 4);
  std::memcpy(words.data(), bytes.data(), kShared);
  return words;
}

// `in`: descriptors of each CTA (4 words), then shared memory.  The registers of A, and the accumulators
// before the instruction, are words of shared memory too.
Kernel kernel_of(const Case& c, size_t pairs) {
  const bool sixteen = element_of(c.a).bits == 16, integer = c.d == "s32";
  std::string body = fmt::format(
      "  .reg .b32 %d<128>, %a<4>;\n  mov.u32 %r90, dynamic;\n  mov.u32 %r91, %thread;\nfill:\n"
      "  mad.wide.u32 %w39, %r91, 4, %in;\n  ld.global.u32 %r92, [%w39+{}];\n  mad.lo.u32 %r93, %r91, 4, "
      "%r90;\n"
      "  st.shared.u32 [%r93], %r92;\n  add.u32 %r91, %r91, 128;\n  setp.lt.u32 %p19, %r91, {};\n  @%p19 bra "
      "fill;\n"
      "  fence.proxy.async.shared::cta;\n  bar.sync 0;\n  mad.wide.u32 %w3, %cta, 16, %in;\n"
      "  ld.global.v2.b64 {{%w1, %w2}}, [%w3];\n  and.b32 %r94, %r90, 0x3ffff;\n  shr.u32 %r94, %r94, 4;\n"
      "  cvt.u64.u32 %w4, %r94;\n  add.u64 %w1, %w1, %w4;\n  add.u64 %w2, %w2, %w4;\n"
      "  mad.lo.u32 %r95, %thread, 16, %r90;\n",
      pairs * 16, kShared / 4);
  if (c.registers) body += "  ld.shared.v4.b32 {%a0, %a1, %a2, %a3}, [%r95];\n";
  for (int i = 0; i < c.count(); ++i)
    body += c.scale_d == "0" ? fmt::format("  mov.b32 %d{}, 0x7fc00000;\n", i)
                             : fmt::format("  ld.shared.b32 %d{}, [%r95+{}];\n", i, 4096 + 64 * i);
  body += fmt::format(
      "  wgmma.fence.sync.aligned;\n  wgmma.mma_async.sync.aligned.m64n{}k{}.{}.{}.{} {}, {}, %w2, {}", c.n,
      element_of(c.a).k(), c.d, c.a, c.b, register_list("%d", c.count()),
      c.registers ? register_list("%a", 4) : "%w1", c.scale_d);
  if (!integer) body += fmt::format(", {}, {}", c.sign_a, c.sign_b);
  if (sixteen && !c.registers) body += c.turn_a ? ", 1" : ", 0";
  if (sixteen) body += c.turn_b ? ", 1" : ", 0";
  body += fmt::format(
      ";\n  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n  mad.lo.u32 %r96, %cta, "
      "128, %thread;\n"
      "  mad.wide.u32 %w5, %r96, {}, %out;\n",
      4 * c.count());
  for (int i = 0; i < c.count(); ++i) body += fmt::format("  st.global.b32 [%w5+{}], %d{};\n", 4 * i, i);
  Kernel kernel{body, 128, static_cast<unsigned>(pairs), kDynamic};
  kernel.dynamic_shared = kShared;
  return kernel;
}

void add(Programs& programs, const std::string& name, const Case& c, const std::vector<Pair>& pairs) {
  programs.push_back({"wgmma_layouts/" + name, [=](Machine& machine) {
                        Words in(pairs.size() * 4);
                        for (size_t i = 0; i < pairs.size(); ++i) {
                          const uint64_t bits[2] = {pairs[i].a.bits(), pairs[i].b.bits()};
                          std::memcpy(&in[4 * i], bits, 16);
                        }
                        // Types of one width may differ between A and B: both read small integers of A's.
                        const Words content = small_integers(c.a, 51);
                        in.insert(in.end(), content.begin(), content.end());
                        return machine.run(kernel_of(c, pairs.size()), in,
                                           pairs.size() * 128 * static_cast<size_t>(c.count()));
                      }});
}

uint32_t stride_for(int swizzle) { return swizzle ? 8u * static_cast<uint32_t>(swizzle) : 256u; }

// Dense and gapped tiles, and starts inside the swizzle's span (the next K of a wide tile).
std::vector<Pair> k_major(int swizzle) {
  const uint32_t dense = stride_for(swizzle), span = swizzle ? static_cast<uint32_t>(swizzle) : 16;
  std::vector<Pair> pairs;
  for (const uint32_t gap : {1u, 2u})
    for (uint32_t inside = 0; inside < std::max(span, 64u); inside += 32) {
      const uint32_t start = swizzle ? inside : inside * 8;
      const uint32_t leading = swizzle ? inside : 128 * gap;  // without meaning where there is a swizzle
      const Descriptor a{start, leading, dense * gap, swizzle};
      pairs.push_back({a, {32768 + start, leading, dense * (3 - gap), swizzle}});
    }
  return pairs;
}

std::vector<Pair> mn_major(int swizzle) {
  std::vector<Pair> pairs;
  const uint32_t dense = stride_for(swizzle);
  for (const auto& [leading, stride] :
       {std::pair(dense, 8 * dense), std::pair(4 * dense, dense), std::pair(2 * dense, 4 * dense)})
    for (const uint32_t start : {0u, dense, 4096u})
      pairs.push_back({{start, leading, stride, swizzle}, {40960 + start, leading, stride, swizzle}});
  return pairs;
}

// Starts and strides that are multiples of the swizzle's pattern, or of 16 alone.
std::vector<Pair> any(int swizzle, bool aligned, uint64_t seed) {
  Random random(seed);
  const auto one = [&](uint32_t base) {
    const uint32_t unit = aligned ? stride_for(swizzle) : 16;
    Descriptor d;
    d.start = base + unit * random.below(4096 / unit);
    d.leading = unit * (1 + random.below(4096 / unit));
    d.stride = unit * (1 + random.below(4096 / unit));
    d.swizzle = swizzle;
    return d;
  };
  std::vector<Pair> pairs;
  for (int i = 0; i < 16; ++i) pairs.push_back({one(0), one(40960)});
  return pairs;
}

}  // namespace

void add_wgmma_layouts(Programs& programs) {
  for (const int swizzle : {0, 32, 64, 128}) {
    for (const char* type : {"bf16", "tf32", "e4m3", "s8"}) {
      Case c;
      c.d = type[0] == 's' ? "s32" : "f32";
      c.a = c.b = type;
      add(programs, fmt::format("k_major.{}.{}", swizzle, type), c, k_major(swizzle));
    }
    for (const auto& [name, turn_a, turn_b] :
         {std::tuple("a", true, false), std::tuple("b", false, true), std::tuple("ab", true, true)}) {
      Case c;
      c.a = c.b = "f16";
      c.n = 96;
      c.turn_a = turn_a, c.turn_b = turn_b;
      std::vector<Pair> pairs = mn_major(swizzle);
      const std::vector<Pair> straight = k_major(swizzle);
      for (size_t i = 0; i < pairs.size(); ++i) {
        if (!turn_a) pairs[i].a = straight[i % straight.size()].a;
        if (!turn_b) pairs[i].b = straight[i % straight.size()].b;
      }
      add(programs, fmt::format("mn_major_{}.{}", name, swizzle), c, pairs);
    }
    for (const bool aligned : {true, false})
      for (const bool turned : {false, true}) {
        Case c;
        c.turn_a = c.turn_b = turned;
        add(programs,
            fmt::format("any_{}.{}.{}", aligned ? "aligned" : "multiple_of_16", turned ? "mn" : "k", swizzle),
            c, any(swizzle, aligned, 53 + static_cast<uint64_t>(swizzle)));
      }
  }
  // A start inside the pattern, with the base offset that says so and with others.
  std::vector<Pair> inside;
  for (uint32_t row = 0; row < 8; ++row)
    for (const uint64_t base : {uint64_t{0}, uint64_t{row}, uint64_t{3}}) {
      Pair pair{{128 * row, 16, 1024, 128}, {32768, 16, 1024, 128}};
      pair.a.base = base;
      inside.push_back(pair);
    }
  add(programs, "base_offset", {.n = 8}, inside);
  const std::vector<Pair> plain = {{{0, 16, 1024, 128}, {32768, 16, 1024, 128}}};
  for (int n = 8; n <= 256; n += 8) {
    Case c;
    c.n = n;
    add(programs, fmt::format("n{}.bf16", n), c, plain);
  }
  for (const int n : {8, 16, 24, 32, 48, 112, 256}) {
    Case c{.d = "s32", .a = "s8", .b = "s8", .n = n};
    add(programs, fmt::format("n{}.s8", n), c, plain);
  }
  // Every type with A in registers, results of both widths.
  for (const auto& [d, a, b] :
       std::vector<std::tuple<const char*, const char*, const char*>>{{"f32", "bf16", "bf16"},
                                                                      {"f32", "f16", "f16"},
                                                                      {"f16", "f16", "f16"},
                                                                      {"f32", "tf32", "tf32"},
                                                                      {"f32", "e4m3", "e4m3"},
                                                                      {"f32", "e5m2", "e5m2"},
                                                                      {"f16", "e4m3", "e4m3"},
                                                                      {"s32", "s8", "s8"}}) {
    Case c{.d = d, .a = a, .b = b, .n = 64, .registers = true};
    add(programs, fmt::format("registers.{}.{}", d, a), c, plain);
    c.registers = false;
    add(programs, fmt::format("shared.{}.{}", d, a), c, plain);
  }
  Case turned{.registers = true, .turn_b = true};
  add(programs, "registers.turned_b", turned, mn_major(128));
  // Signs, and the accumulator.
  for (const auto& [name, sign_a, sign_b] :
       {std::tuple("a", -1, 1), std::tuple("b", 1, -1), std::tuple("ab", -1, -1)})
    add(programs, fmt::format("negated_{}", name), {.sign_a = sign_a, .sign_b = sign_b}, plain);
  add(programs, "accumulate.f32", {.scale_d = "1"}, plain);
  add(programs, "accumulate.s32", {.d = "s32", .a = "s8", .b = "s8", .scale_d = "1"}, plain);
  add(programs, "accumulate.f16", {.d = "f16", .a = "f16", .b = "f16", .scale_d = "1"}, plain);
}

}  // namespace mxfa::silicon
