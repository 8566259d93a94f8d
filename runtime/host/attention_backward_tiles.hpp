// Tiles of attention_bwd_sm90: which CTA computes dK and dV of which keys, in which order.
#pragma once

#include <initializer_list>
#include <vector>

#include "host/plan.hpp"

namespace mxfa {

// int32[4] of the kernel's tile list.
struct KeyTile {
  int32_t batch, head_kv;
  int32_t first_key;
  // keys + 256 x: 64 or 128 keys, of which the last tile of a sequence may have fewer.  x: with
  // `deterministic` the rank, else 1 where the main kernel prepares the query rows.
  int32_t keys_and_mark;
  int32_t keys() const { return keys_and_mark % 256; }
  int32_t rank() const { return keys_and_mark / 256; }
  bool waits() const { return keys_and_mark >= 256; }
};
static_assert(sizeof(KeyTile) == 16);

// int32[2] of the list of query tiles, one for each CTA of the other kernels and head.
struct QueryTile {
  int32_t batch, tile;
};
static_assert(sizeof(QueryTile) == 8);

struct KeyTileProblem {
  const Sequences* q;  // one sequence with broadcast_q
  const Sequences* k;
  int32_t heads_q, heads_kv;
  bool broadcast_q;
  int32_t window_left, window_right;  // as the kernel takes them; -1 unbounded
  int32_t tile_rows;                  // query rows of a step
  int32_t multiprocessors;
  bool deterministic;
  int64_t row_bytes;  // of Q, dO and dQ's accumulator, of one query row and head
  int64_t l2_bytes;
};

struct KeyTilePlan {
  std::vector<KeyTile> tiles;
  double makespan = 0, mean = 0;  // of the SMs, in steps of a tile of 128 keys
};

// Every key of every sequence exactly once a key/value head, seen or not: the kernel writes the zeros.
// Heaviest first within groups of (sequence, head) pairs whose queries and dQ fit in L2, for the first free
// CTA; tiles of about the same weight in the order sequence, head, keys.  Throws mxfa::Error where the list
// is too long for the kernel's numbers.
KeyTilePlan plan_key_tiles(const KeyTileProblem& problem);

// Query tiles that a tile of keys walks for each query head.
int32_t visible_query_tiles(const KeyTileProblem& problem, const KeyTile& tile);

struct QueryTilePlan {
  std::vector<QueryTile> tiles;  // a sequence's together, in their order
  int64_t prepared_first = 0;    // of all heads, numbered head by head of a sequence: those of prepare
};

struct QueryTileProblem {
  const Sequences* q;  // one sequence with broadcast_q
  int32_t batch, heads_q, heads_kv;
  bool broadcast_q;
  int32_t rows;  // of a tile
  int64_t
      first_tiles;  // of keys, whose rows are prepared before the main kernel starts; the list's length: all
};

// All tiles of query rows, of each sequence of the batch with broadcast_q: first those of sequences without
// keys, then in the order in which `keys` needs them.  Marks the tiles of keys whose rows the main kernel
// prepares.
QueryTilePlan plan_query_tiles(const QueryTileProblem& problem, std::vector<KeyTile>& keys);

// Query rows of a unit of dQ's accumulators.
inline constexpr int32_t kDqUnitRows = 8;

struct RowListProblem {
  const std::vector<QueryTile>& queries;
  const std::vector<KeyTile>& keys;
  const Sequences& q;  // one sequence with broadcast_q
  int32_t pairs, heads_q, heads_kv;
  bool broadcast_q;
  int32_t rows, stat_tiles, dq_units;  // of a tile; of a head
  int32_t compute_warps;               // of a CTA: each reports its additions
};

// Whether the main kernel, which works out addresses of rows from numbers of 32 bits, can do so with these.
bool are_short(std::initializer_list<int64_t> numbers);

// What the main kernel prepares and finishes, in the order of `queries`, head by head of a sequence.
std::vector<abi::BackwardRowTile> list_row_tiles(const RowListProblem& problem);

// Whether a tile of keys meets fewer than 512 query rows on average: two tiles of K and V in flight are then
// worth more than steps of 80 rows and room to stage dQ (measured; docs/hopper.md).
bool walks_are_short(const mxfa_plan& plan);

}  // namespace mxfa
