// Tiles of attention_bwd_sm90: which CTA computes dK and dV of which keys, in which order.
#pragma once

#include <vector>

#include "host/plan.hpp"

namespace mxfa {

// int32[4] of the kernel's tile list.
struct KeyTile {
  int32_t batch, head_kv;
  int32_t first_key;
  int32_t
      keys_and_rank;  // keys + 256 rank: 64 or 128 keys, of which the last tile of a sequence may have fewer
  int32_t keys() const { return keys_and_rank % 256; }
  int32_t rank() const { return keys_and_rank / 256; }
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

// All tiles of `rows` query rows, of each sequence of the batch with broadcast_q.
std::vector<QueryTile> list_query_tiles(const Sequences& q, int32_t batch, bool broadcast_q, int32_t rows);

}  // namespace mxfa
