// The C ABI of mxfa.h with owners and exceptions; nothing else.  Every failed call throws mxfa::Error with
// the sentence of mxfa_error().
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "mxfa/mxfa.h"

namespace mxfa {

class Error : public std::runtime_error {
 public:
  Error(mxfa_status status, const std::string& what) : std::runtime_error(what), status_(status) {}
  mxfa_status status() const { return status_; }

 private:
  mxfa_status status_;
};

class Plan;

class Context {
 public:
  explicit Context(const char* device = nullptr, const char* cache_dir = nullptr, bool verbose = false) {
    mxfa_context_options options{sizeof(mxfa_context_options), device, cache_dir, verbose};
    mxfa_context* raw = nullptr;
    const mxfa_status status = mxfa_create(&options, &raw);
    context_.reset(raw);
    check(status);
  }

  Plan attention_forward(const mxfa_attention& attention) const;
  Plan attention_backward(const mxfa_attention& attention,
                          const mxfa_attention_backward_options& options = {
                              sizeof(mxfa_attention_backward_options), 0, 0, 0, 0}) const;
  Plan quantize(const mxfa_quantize_desc& desc) const;

  mxfa_context* get() const { return context_.get(); }
  void check(mxfa_status status) const {
    if (status != MXFA_OK) throw Error(status, context_ ? mxfa_error(context_.get()) : "out of memory");
  }

 private:
  struct Destroy {
    void operator()(mxfa_context* context) const { mxfa_destroy(context); }
  };
  std::unique_ptr<mxfa_context, Destroy> context_;
};

// Refers to the context it came from, which must outlive it.
class Plan {
 public:
  Plan(const Context& context, mxfa_plan* plan) : context_(&context), plan_(plan) {}

  uint64_t workspace() const { return mxfa_plan_workspace(get()); }
  std::string describe() const { return mxfa_plan_describe(get()); }
  void prepare(void* workspace, void* stream) const {
    context_->check(mxfa_plan_prepare(get(), workspace, stream));
  }
  void check(void* workspace, void* stream) const {
    context_->check(mxfa_plan_check(get(), workspace, stream));
  }
  void operator()(const mxfa_attention_forward_args& args, void* stream) const {
    context_->check(mxfa_attention_forward(get(), &args, stream));
  }
  void operator()(const mxfa_attention_backward_args& args, void* stream) const {
    context_->check(mxfa_attention_backward(get(), &args, stream));
  }
  void operator()(const mxfa_quantize_args& args, void* stream) const {
    context_->check(mxfa_quantize(get(), &args, stream));
  }

  mxfa_plan* get() const { return plan_.get(); }

 private:
  struct Destroy {
    void operator()(mxfa_plan* plan) const { mxfa_plan_destroy(plan); }
  };
  const Context* context_;
  std::unique_ptr<mxfa_plan, Destroy> plan_;
};

inline Plan Context::attention_forward(const mxfa_attention& attention) const {
  mxfa_plan* plan = nullptr;
  check(mxfa_plan_attention_forward(get(), &attention, &plan));
  return Plan(*this, plan);
}

inline Plan Context::attention_backward(const mxfa_attention& attention,
                                        const mxfa_attention_backward_options& options) const {
  mxfa_plan* plan = nullptr;
  check(mxfa_plan_attention_backward(get(), &attention, &options, &plan));
  return Plan(*this, plan);
}

inline Plan Context::quantize(const mxfa_quantize_desc& desc) const {
  mxfa_plan* plan = nullptr;
  check(mxfa_plan_quantize(get(), &desc, &plan));
  return Plan(*this, plan);
}

}  // namespace mxfa
