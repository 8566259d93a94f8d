/* mxfa: jagged attention kernels, JIT-compiled for each configuration and launched through the CUDA Driver
 * API.  C ABI.
 *
 * Tensors are packed [tokens, heads, head_dim], head_dim contiguous.  Sequence b owns tokens offsets[b] to
 * offsets[b+1] - 1; offsets begin with 0, never decrease and end at most at 2^31 - 2; a sequence has at most
 * 2^30 tokens and may have none.
 *
 * Device pointers are CUdeviceptr values; host pointers say so.  A stream is a CUstream of the context's
 * device (0: the default stream).
 *
 * Every struct starts with its own size: set it to sizeof(the struct).  Members that an older caller does not
 * know keep their default.
 *
 * No call allocates device memory; the caller passes a workspace whose size the plan tells.  No launch
 * synchronises with the host, copies or allocates, so that a launch can be captured into a CUDA graph; only
 * mxfa_plan_check waits.
 *
 * Errors: a status is returned and mxfa_error() holds a sentence that names the value, the place and the
 * remedy.  Nothing was launched or written when a call fails its checks.  A launch or copy that the driver
 * refuses (an invalid value, too few resources) did nothing and leaves the context as it was.  After one that
 * failed the device's state is unknown, and every later call on the context repeats the first cause.
 *
 * A context may be used by one thread at a time, from any thread; different contexts are independent.  A
 * context does not survive fork(): calls in a child are refused.
 */
#ifndef MXFA_H
#define MXFA_H

#include <stddef.h>
#include <stdint.h>

#if defined(MXFA_BUILDING)
#define MXFA_API __attribute__((visibility("default")))
#else
#define MXFA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Numerically the exit codes of the program `mxfa`, where they overlap. */
typedef enum mxfa_status {
  MXFA_OK = 0,
  MXFA_ERROR_INVALID = 2, /* an argument, an option or a shape is wrong or not supported */
  MXFA_ERROR_DEVICE = 3   /* device, driver, compiler or cache trouble */
} mxfa_status;

typedef struct mxfa_context mxfa_context;
typedef struct mxfa_plan mxfa_plan;

/* ---- context ------------------------------------------------------------------------------------- */
typedef struct mxfa_context_options {
  uint32_t size;
  /* "auto", "gpu", "emulator", "emulator:b200", "emulator:gb300" or "emulator:h200"; all but auto may end in
   * the number of a device, counted from 0: "gpu:1".  Without it: the first that there are kernels for.
   * NULL: MXFA_DEVICE, then auto (a GPU if there is one, else the CPU driver). */
  const char* device;
  /* Folder of compiled kernels.  NULL: MXFA_CACHE_DIR, then XDG_CACHE_HOME/mxfa, HOME/.cache/mxfa, a private
   * temporary folder, and memory only where none can be written. */
  const char* cache_dir;
  int32_t verbose; /* 1: one line on stderr for warm loads too; cold compiles always print one */
} mxfa_context_options;

/* Loads the driver library and NVRTC by name, takes the device's primary context.  On failure *context is
 * still created when memory allows, so that mxfa_error(*context) can be read; it must be destroyed. */
MXFA_API mxfa_status mxfa_create(const mxfa_context_options* options, mxfa_context** context);
/* Plans of the context must have been destroyed. */
MXFA_API void mxfa_destroy(mxfa_context* context);
/* The sentence of the last failed call on this context; "" if none.  Valid until the next call on it. */
MXFA_API const char* mxfa_error(const mxfa_context* context);

/* ---- common enumerations -------------------------------------------------------------------------- */
/* MXFP8: E4M3 payload, a UE8M0 scale for each 32 elements. */
typedef enum mxfa_dtype { MXFA_BF16 = 0, MXFA_MXFP8 = 1 } mxfa_dtype;
typedef enum mxfa_scaling_mode { MXFA_RCEIL = 0, MXFA_FLOOR = 1 } mxfa_scaling_mode;
/* Of the operands.  It also says how the attention backward rounds dS before dQ and dK: 1X32 to BF16, 32X32
 * to MXFP8 in blocks of 32 queries x 32 keys.  Under a causal mask (a right window) 32X32 lets later tokens
 * into the rounding of earlier ones: dQ of a query may then differ in its last bits with tokens it does not
 * see. */
typedef enum mxfa_block { MXFA_BLOCK_1X32 = 0, MXFA_BLOCK_32X32 = 1 } mxfa_block;
/* Scale of P, the softmax numerators of the second product.  Constant: 2^-8. */
typedef enum mxfa_p_scale { MXFA_P_CONSTANT = 0, MXFA_P_DYNAMIC = 1 } mxfa_p_scale;
typedef enum mxfa_orientation {
  MXFA_SCALE_ALONG_D = 1,     /* one scale per token and 32 channels; atom rows are tokens */
  MXFA_SCALE_ALONG_TOKENS = 2 /* one scale per channel and 32 tokens; atom rows are channels */
} mxfa_orientation;

/* Scale factors of one MXFP8 tensor.
 * Storage: H * S/128 atoms of 512 bytes, where S = cu_sf[batch] and cu_sf[b+1] = cu_sf[b] +
 * 128*ceil(len_b/128). Tile n (128 tokens) of sequence b and head h is atom h*(S/128) + cu_sf[b]/128 + n in
 * both orientations; inside, byte (r%32)*16 + (r/32)*4 + c with along D:      r = token in tile, c =
 * channel/32; along tokens: r = channel,       c = token in tile / 32. Bytes of rows or columns outside the
 * sequence or the head never influence a result. */
typedef struct mxfa_scales {
  void* data;          /* device, 512-byte aligned */
  uint64_t bytes;      /* at least H * S * 4 */
  int32_t orientation; /* mxfa_orientation; a tag that does not fit the operand is refused */
} mxfa_scales;

/* A packed tensor.  Without rows to touch, data may be NULL. */
typedef struct mxfa_tensor {
  void* data;         /* device, 16-byte aligned */
  int64_t row_stride; /* elements from one token to the next, >= heads * head_dim; a multiple of 16 bytes */
  int64_t rows;       /* tokens the buffer holds, >= the plan's total */
  mxfa_scales scales; /* MXFP8 operands only, else all 0 */
} mxfa_tensor;

/* ---- attention forward ---------------------------------------------------------------------------- */
typedef struct mxfa_attention {
  uint32_t size;
  int32_t dtype;             /* mxfa_dtype of Q, K, V; O is BF16 */
  int32_t head_dim;          /* 64, 96, 128 */
  int32_t heads_q, heads_kv; /* heads_q % heads_kv == 0 */
  int32_t batch;
  const int32_t* offsets_q; /* host, batch+1 (2 with broadcast_q) */
  const int32_t* offsets_k; /* host, batch+1 */
  /* One Q of offsets_q[1] rows for every sequence; O and LSE have batch * that many rows. */
  int32_t broadcast_q;
  int32_t causal; /* bottom-right aligned: key j visible to query i iff j <= i + (len_k - len_q) */
  int32_t window_left, window_right; /* bottom-right aligned, inclusive, -1 unbounded */
  /* Softmax scale, not negative; NAN: 1/sqrt(head_dim).  0: a uniform average over the visible keys, for
   * scores that differ by less than 2^100.  The backward takes 0, or 2^-114 and more. */
  float scale;
  int32_t scaling_mode, block, p_scale; /* MXFP8 only */
  const char* kernel;                   /* host, JSON object of kernel configuration overrides, or NULL */
  /* Not 0: a capacity; see "lengths in device memory".  A longest sequence of 0 is the total. */
  int32_t max_total_q, max_total_k;
  int32_t max_length_q, max_length_k;
} mxfa_attention;
/* Fills a struct with the defaults (size, MHA of 0 heads, windows -1, scale NAN). size: sizeof(the struct) as
 * the caller was compiled; not a byte more is written. */
MXFA_API void mxfa_attention_defaults(mxfa_attention* attention, uint32_t size);

/* Checks everything that can be checked, compiles or loads the kernel, computes tile lists.  An option that
 * this version has no kernel for is refused by name.  Offsets are copied. */
MXFA_API mxfa_status mxfa_plan_attention_forward(mxfa_context* context, const mxfa_attention* attention,
                                                 mxfa_plan** plan);

/* Lengths in device memory.  With max_total_q and max_total_k offsets_q and offsets_k above are NULL, and the
 * plan is for a capacity: exactly `batch` sequences, at most max_total tokens together, at most max_length
 * each (with broadcast_q the one Q has at most max_total_q rows).  Each launch is then given offsets of this
 * form in device memory, and reads them when it runs.  So a launch may be captured into a CUDA graph once and
 * replayed with other offsets and other data: whatever lies behind the pointers may change between replays,
 * in stream order, while pointers, strides and `rows` are those of the capture.  mxfa_plan_prepare comes
 * before the capture.  A kernel in front of the others checks the offsets and lists the tiles.
 *
 * Tensors have max_total rows or more, LSE has [heads_q, max_total_q] (broadcast_q: batch * max_total_q
 * rows, of which sequence b owns those from b * offsets_q[1] on), and scales room for the most that such
 * lengths need: max_total + 127 * batch rows are always enough.  Where S appears below it is that of the
 * launch's own offsets.  Rows past the last offset are neither read nor written.
 *
 * Offsets that do not begin with 0, decrease, or go beyond the capacity: the launch computes nothing and
 * leaves all its outputs as they were, and the workspace keeps what was wrong first until mxfa_plan_check
 * reports it.
 *
 * Refused in such plans: the MXFP8 backward and kernel.method split; on Blackwell kernel.ctas_per_tile 2,
 * kernel.pack_heads on and the schedulers static, lpt and clc. */
typedef struct mxfa_attention_forward_args {
  uint32_t size;
  mxfa_tensor q, k, v; /* MXFP8: Q and K scales along D, V scales along tokens */
  mxfa_tensor o;       /* BF16 [total_q or batch*n_q, heads_q, head_dim]; rows that see no key become +0 */
  /* Device, [heads_q, rows of O], natural logarithm; -inf for rows that see no key; NULL: not stored. */
  float* lse;
  void* workspace; /* device, 256-byte aligned, mxfa_plan_workspace() bytes, prepared */
  /* Device, 4-byte aligned, as in mxfa_attention: for a plan with a capacity only, else NULL. */
  const int32_t* offsets_q;
  const int32_t* offsets_k;
} mxfa_attention_forward_args;
/* Launches on stream, without waiting; no query: no launch.  MXFP8 on Hopper: workspace has BF16 Q, K, V. */
MXFA_API mxfa_status mxfa_attention_forward(mxfa_plan* plan, const mxfa_attention_forward_args* args,
                                            void* stream);

/* ---- attention backward --------------------------------------------------------------------------- */
/* How dQ is summed over tiles of 128 keys.  FP16 halves its traffic and rounds every tile's part and every
 * sum to 11 bits; a sum that grows beyond 65504 becomes infinite, and so does dQ. */
typedef enum mxfa_dq_accumulate { MXFA_DQ_FP32 = 0, MXFA_DQ_FP16 = 1 } mxfa_dq_accumulate;

/* All 0 but size: the defaults. */
typedef struct mxfa_attention_backward_options {
  uint32_t size;
  int32_t dq_accumulate; /* mxfa_dq_accumulate */
  int32_t dq_scale_log2; /* MXFA_DQ_FP16 only, -30 to 30: what is kept is the sum times 2^dq_scale_log2 */
  int32_t deterministic; /* 1: dQ has the same bits in every run (dK and dV always have) */
  int32_t dkv_output;    /* mxfa_dtype of dK and dV */
} mxfa_attention_backward_options;

/* The gradients of mxfa_attention_forward for the same struct: masks, scale, heads, broadcast_q and offsets
 * mean the same.  With grouped heads dK and dV are summed over the query heads of a group, with broadcast_q
 * dQ over the batch.  options may be NULL: the defaults.  An option or a device that this version has no
 * kernel for is refused by name.  attention->kernel overrides the main kernel's configuration.
 *
 * The workspace holds dQ in FP32, 4 * head_dim bytes (FP16: 2 * head_dim) a query and query head, each
 * sequence padded to 8 queries (with broadcast_q one Q, in up to 16 copies), and 8 bytes a query and query
 * head for LSE and delta, padded to 64 or 128 queries; MXFP8: and Q, K, V and dO in BF16.
 * mxfa_plan_describe lists its parts.  What it holds before a launch does not matter. */
MXFA_API mxfa_status mxfa_plan_attention_backward(mxfa_context* context, const mxfa_attention* attention,
                                                  const mxfa_attention_backward_options* options,
                                                  mxfa_plan** plan);

typedef struct mxfa_attention_backward_args {
  uint32_t size;
  /* BF16: what the forward was given.  MXFP8: Q, K, V and dO with scales along D, all four.  Q and K are then
   * the forward's; the forward's V has scales along tokens, so V is quantised along D for the backward, or
   * in blocks of 32x32, whose one payload has scales in both orientations. dO of a broadcast Q has scales for
   * `batch` sequences of that many queries. */
  mxfa_tensor q, k, v;
  mxfa_tensor o; /* BF16, what the forward wrote */
  /* BF16 or MXFP8 as Q, the gradient of O; rows of O that see no key contribute nothing.  delta, the row sums
   * of O * dO, takes it as it is here. */
  mxfa_tensor d_o;
  /* Device, [heads_q, rows of O], what the forward wrote: natural logarithm, -inf for rows without a key. */
  const float* lse;
  /* BF16; every row of every sequence is written, +0 where nothing contributes.  Rows past the last offset
   * are left alone.  None may overlap another or an input. */
  mxfa_tensor dq;           /* [total_q, heads_q, head_dim]; with broadcast_q one Q, summed over the batch */
  mxfa_tensor dk, dv;       /* [total_k, heads_kv, head_dim] */
  void* workspace;          /* device, 256-byte aligned, mxfa_plan_workspace() bytes, prepared */
  const int32_t* offsets_q; /* as in mxfa_attention_forward_args */
  const int32_t* offsets_k;
} mxfa_attention_backward_args;
/* Launches up to four kernels on stream, in order; returns before they have run.  No queries and no keys:
 * success, no launch. */
MXFA_API mxfa_status mxfa_attention_backward(mxfa_plan* plan, const mxfa_attention_backward_args* args,
                                             void* stream);

/* ---- MXFP8 quantisation ---------------------------------------------------------------------------- */
typedef enum mxfa_quantize_layout {
  MXFA_QUANTIZE_ALONG_D = 0,      /* 1x32 blocks along head_dim */
  MXFA_QUANTIZE_ALONG_TOKENS = 1, /* 1x32 blocks along the tokens of a sequence, starting at the sequence */
  MXFA_QUANTIZE_SQUARE = 2        /* 32x32 blocks, both scale layouts in one pass */
} mxfa_quantize_layout;

typedef struct mxfa_quantize_desc {
  uint32_t size;
  int32_t head_dim, heads, batch;
  const int32_t* offsets; /* host, batch+1 */
  int32_t layout, scaling_mode;
  const char* kernel; /* host, JSON object of kernel configuration overrides, or NULL */
} mxfa_quantize_desc;
MXFA_API mxfa_status mxfa_plan_quantize(mxfa_context* context, const mxfa_quantize_desc* desc,
                                        mxfa_plan** plan);

/* A scale buffer that the layout does not write must be NULL. */
typedef struct mxfa_quantize_args {
  uint32_t size;
  mxfa_tensor input;         /* BF16 */
  void* payload;             /* device, E4M3 [tokens, heads, head_dim] contiguous, 16-byte aligned */
  mxfa_scales scales_d;      /* written by ALONG_D and SQUARE: every byte of every atom, padding as 0 */
  mxfa_scales scales_tokens; /* written by ALONG_TOKENS and SQUARE, likewise */
  void* workspace;           /* device, 256-byte aligned, mxfa_plan_workspace() bytes, prepared */
} mxfa_quantize_args;
/* Launches on stream; returns before the kernel has run.  Total of zero tokens: success, no launch. */
MXFA_API mxfa_status mxfa_quantize(mxfa_plan* plan, const mxfa_quantize_args* args, void* stream);

/* ---- plans ------------------------------------------------------------------------------------------ */
MXFA_API uint64_t mxfa_plan_workspace(const mxfa_plan* plan); /* device bytes */
/* Copies offsets and tile lists into the workspace, in stream order.  Once for each workspace; the plan must
 * outlive the copy.  Launches that may run at the same time need a workspace each: kernels count in it. */
MXFA_API mxfa_status mxfa_plan_prepare(mxfa_plan* plan, void* workspace, void* stream);
/* For a plan with a capacity: waits for the stream, and reports and forgets what a launch on this workspace
 * found wrong with its offsets since the last check (MXFA_ERROR_INVALID; the context stays usable).  Nothing
 * found, or the plan has no capacity: MXFA_OK.  Not while the stream is captured. */
MXFA_API mxfa_status mxfa_plan_check(mxfa_plan* plan, void* workspace, void* stream);
/* What was resolved, as JSON text (UTF-8): options, kernel name, key, architecture, grid, tiles, registers,
 * spills, shared and tensor memory maps, barrier and role tables, build and load milliseconds, cache state.
 * "" on failure, with the reason in mxfa_error().  Valid until the next call or the plan is destroyed. */
MXFA_API const char* mxfa_plan_describe(mxfa_plan* plan);
MXFA_API void mxfa_plan_destroy(mxfa_plan* plan);

/* Rows of scale storage for these lengths: S above; -1 where the offsets are not valid.  offsets is a host
 * pointer. */
MXFA_API int64_t mxfa_scale_rows(int32_t batch, const int32_t* offsets);

#ifdef __cplusplus
}
#endif
#endif
