#include "host/attention_l2_groups.hpp"

#include <algorithm>
#include <numeric>

namespace mxfa {

std::vector<int32_t> group_pairs(const std::vector<PairWork>& pairs, int64_t budget, int64_t last_tiles) {
  std::vector<size_t> order(pairs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t x, size_t y) { return pairs[x].heaviest > pairs[y].heaviest; });
  size_t last = order.size();
  for (int64_t tiles = 0; last > 0 && tiles < last_tiles;) tiles += pairs[order[--last]].tiles;
  std::vector<int32_t> groups(pairs.size());
  int32_t group = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const PairWork& pair = pairs[order[i]];
    if (i > 0 && i <= last && (i == last || bytes + pair.bytes > budget)) ++group, bytes = 0;
    bytes += pair.bytes;
    groups[order[i]] = group;
  }
  return groups;
}

}  // namespace mxfa
