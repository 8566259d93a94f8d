#include "operands.hpp"

#include <algorithm>

namespace mxfa::silicon {

std::vector<uint64_t> all_halves() {
  std::vector<uint64_t> values(65536);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i;
  return values;
}

std::vector<uint64_t> all_pairs(int seed) {
  std::vector<uint64_t> values(65536);
  const uint64_t factor = static_cast<uint64_t>(seed) * 2 + 40503;
  for (size_t i = 0; i < values.size(); ++i) values[i] = i | (i * factor & 0xffff) << 16;
  return values;
}

std::vector<uint64_t> every_upper_half() {
  const uint32_t lower[] = {0x0000, 0x8000, 0x7fff, 0x8001, 0x1000, 0x0fff,
                            0x1001, 0xf000, 0xefff, 0x0001, 0xffff};
  std::vector<uint64_t> values(65536);
  Random random(1);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t pick = random.below(14);
    values[i] = i << 16 | (pick < 11 ? lower[pick] : random.below(65536));
  }
  return values;
}

std::vector<uint64_t> float_edges() {
  std::vector<uint64_t> values;
  for (const uint32_t magnitude :
       {0u,          1u,          2u,          0x007fffffu, 0x00800000u, 0x00800001u, 0x00ffffffu,
        0x01000000u, 0x0b800000u, 0x1e3ce508u, 0x33000000u, 0x33000001u, 0x387fffffu, 0x38800000u,
        0x38d1b717u, 0x3effffffu, 0x3f000000u, 0x3f000001u, 0x3f7fffffu, 0x3f800000u, 0x3f800001u,
        0x3fc00000u, 0x40200000u, 0x40490fdbu, 0x42f0ffffu, 0x43e00000u, 0x43e00001u, 0x43f00000u,
        0x477fe000u, 0x477ff000u, 0x4b000000u, 0x4b000001u, 0x4b800000u, 0x4b800001u, 0x4effffffu,
        0x4f000000u, 0x4f7fffffu, 0x4f800000u, 0x5f000000u, 0x5f800000u, 0x7e800000u, 0x7f000000u,
        0x7f7fffffu, 0x7f800000u, 0x7f800001u, 0x7fa00000u, 0x7fc00000u, 0x7fc12345u, 0x7fffffffu}) {
    values.push_back(magnitude);
    values.push_back(magnitude | 0x80000000u);
  }
  Random random(7);
  for (int i = 0; i < 16; ++i) values.push_back(random.word());
  for (int i = 0; i < 16; ++i) values.push_back(0x3f000000u + (random.word() >> 8) * ((i & 1) ? 1 : 4));
  return values;
}

namespace {
std::vector<uint64_t> small_edges(std::vector<uint64_t> magnitudes, int seed) {
  std::vector<uint64_t> values;
  for (const uint64_t m : magnitudes) {
    values.push_back(m);
    values.push_back(m | 0x8000);
  }
  Random random(static_cast<uint64_t>(seed));
  for (int i = 0; i < 16; ++i) values.push_back(random.below(65536));
  return values;
}
}  // namespace

std::vector<uint64_t> half_edges() {
  return small_edges(
      {0,      1,      2,      0x3fe,  0x3ff,  0x400,  0x401,  0x7ff,  0x800,  0x1400, 0x3800, 0x3bff, 0x3c00,
       0x3c01, 0x3e00, 0x4000, 0x4248, 0x6bff, 0x7800, 0x7bff, 0x7c00, 0x7c01, 0x7d00, 0x7e00, 0x7fff},
      16);
}

std::vector<uint64_t> bfloat_edges() {
  return small_edges(
      {0,      1,      2,      0x7e,   0x7f,   0x80,   0x81,   0x100,  0x3f00, 0x3f7f, 0x3f80, 0x3f81,
       0x3fc0, 0x4000, 0x4049, 0x4380, 0x7f00, 0x7f7f, 0x7f80, 0x7f81, 0x7fa0, 0x7fc0, 0x7fff},
      17);
}

std::vector<uint64_t> integer_edges(int bits) {
  std::vector<uint64_t> values;
  const uint64_t all = bits == 64 ? ~0ull : (1ull << bits) - 1;
  for (const int shift : {0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 63})
    if (shift < bits)
      for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}})
        values.push_back(((1ull << shift) + offset) & all);
  values.push_back(all);
  values.push_back(all - 1);
  values.push_back(0x5555555555555555ull & all);
  values.push_back(0xaaaaaaaaaaaaaaaaull & all);
  Random random(static_cast<uint64_t>(bits));
  for (int i = 0; i < 16; ++i) values.push_back(random.next() & all);
  return values;
}

Columns combine(const std::vector<std::vector<uint64_t>>& operands, size_t limit) {
  size_t all = 1;
  for (const auto& values : operands) all *= values.size();
  Columns columns(operands.size());
  Random random(11);
  for (size_t i = 0; i < std::min(all, limit); ++i) {
    size_t index = all <= limit ? i : random.next() % all;
    for (size_t k = 0; k < operands.size(); ++k) {
      columns[k].push_back(operands[k][index % operands[k].size()]);
      index /= operands[k].size();
    }
  }
  return columns;
}

}  // namespace mxfa::silicon
