// Lengths from a distribution.  One generator (xorshift64*, PortableRandom) and one formula a distribution,
// so that a shape file means the same batch everywhere; only exp, log and cos of the platform's library may
// move a lognormal length by one.
#include "host/length_distribution.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "host/shape_file.hpp"

namespace mxfa {

namespace {

using Kind = JsonValue::Kind;

constexpr int64_t kMaxCount = int64_t{1} << 24;     // sequences of one batch
constexpr int64_t kMaxZipfSpan = int64_t{1} << 20;  // the cumulative table is kept in memory

class DistributionReader {
 public:
  DistributionReader(const JsonValue& value, const std::string& key, const std::string& source)
      : value_(value), key_(key), source_(source) {}

  std::vector<int32_t> read() {
    const JsonValue* kind = value_.find("distribution");
    if (!kind) fail_at(value_, key_ + ".distribution: missing; need lognormal, uniform, constant or zipf");
    refuse_unknown_keys(value_, key_ + ".", {"distribution", "count", "mean", "sigma", "min", "max", "seed"},
                        source_);
    const std::string name = kind->kind == Kind::kString ? kind->text : "";
    count_ = integer("count", std::nullopt, 0, kMaxCount);
    if (name == "constant") return constant();
    if (name == "uniform") return uniform();
    if (name == "lognormal") return lognormal();
    if (name == "zipf") return zipf();
    fail(*kind, "distribution", "lognormal, uniform, constant or zipf");
  }

 private:
  [[noreturn]] void fail_at(const JsonValue& value, const std::string& sentence) const {
    throw InputError(json_place(source_, value.line, value.column) + sentence);
  }
  [[noreturn]] void fail(const JsonValue& value, const char* name, const std::string& rule) const {
    fail_at(value, fmt::format("{}.{}: got {}, need {}", key_, name, value.quoted(), rule));
  }
  const JsonValue* get(const char* name, bool required) const {
    const JsonValue* value = value_.find(name);
    if (!value && required)
      fail_at(value_, fmt::format("{}.{}: missing; this distribution needs it", key_, name));
    return value;
  }
  void refuse(std::initializer_list<const char*> names, const char* distribution) const {
    for (const char* name : names) {
      if (const JsonValue* value = value_.find(name)) {
        fail_at(*value, fmt::format("{}.{}: has no effect with distribution {}; remove it", key_, name,
                                    distribution));
      }
    }
  }
  int64_t integer(const char* name, std::optional<int64_t> otherwise, int64_t low, int64_t high) const {
    const JsonValue* value = get(name, !otherwise);
    if (!value) return *otherwise;
    if (value->kind != Kind::kInteger || !value->fits || value->integer < low || value->integer > high) {
      fail(*value, name, fmt::format("an integer from {} to {}", low, high));
    }
    return value->integer;
  }
  double positive(const char* name) const {
    const JsonValue* value = get(name, true);
    if ((value->kind != Kind::kInteger && value->kind != Kind::kNumber) || value->number <= 0) {
      fail(*value, name, "a finite number above 0");
    }
    return value->number;
  }
  void read_range(std::optional<int64_t> min, std::optional<int64_t> max) {
    min_ = integer("min", min, 0, INT32_MAX);
    max_ = integer("max", max, 0, INT32_MAX);
    if (max_ < min_)
      fail(value_.find("max") ? *value_.find("max") : *value_.find("min"), "max",
           fmt::format("at least min, which is {}", min_));
  }
  PortableRandom random() const {
    return PortableRandom(static_cast<uint64_t>(integer("seed", 0, 0, INT64_MAX)));
  }

  template <class Draw>
  std::vector<int32_t> fill(Draw&& draw) const {
    std::vector<int32_t> lengths(static_cast<size_t>(count_));
    for (int32_t& length : lengths) length = static_cast<int32_t>(draw());
    return lengths;
  }

  std::vector<int32_t> constant() {
    refuse({"sigma", "min", "max", "seed"}, "constant");
    const int64_t mean = integer("mean", std::nullopt, 0, INT32_MAX);
    return fill([&] { return mean; });
  }

  std::vector<int32_t> uniform() {
    refuse({"mean", "sigma"}, "uniform");
    read_range(std::nullopt, std::nullopt);
    PortableRandom source = random();
    return fill([&] {
      return min_ + static_cast<int64_t>(std::floor(source.uniform() * static_cast<double>(max_ - min_ + 1)));
    });
  }

  // exp(N(mu, sigma)) with the mean that was asked for: E = exp(mu + sigma^2/2).  Clipping to [min, max]
  // moves it, as it must.
  std::vector<int32_t> lognormal() {
    read_range(0, INT32_MAX);
    const double mean = positive("mean"), sigma = positive("sigma");
    const double median = mean * std::exp(-0.5 * sigma * sigma);
    PortableRandom source = random();
    return fill([&] {
      const double drawn = std::trunc(median * std::exp(sigma * source.normal()));
      return static_cast<int64_t>(std::clamp(drawn, static_cast<double>(min_), static_cast<double>(max_)));
    });
  }

  // P(length = min + k - 1) proportional to k^-sigma, k = 1 .. max-min+1: many short sequences, few long
  // ones.
  std::vector<int32_t> zipf() {
    refuse({"mean"}, "zipf");
    read_range(1, std::nullopt);
    if (max_ - min_ >= kMaxZipfSpan)
      fail(*value_.find("max"), "max", fmt::format("less than min + {}", kMaxZipfSpan));
    const double sigma = positive("sigma");
    std::vector<double> cumulative;
    double sum = 0;
    for (int64_t k = 1; k <= max_ - min_ + 1; ++k)
      cumulative.push_back(sum += std::pow(static_cast<double>(k), -sigma));
    PortableRandom source = random();
    return fill([&] {
      const double drawn = source.uniform() * sum;
      const auto rank = std::upper_bound(cumulative.begin(), cumulative.end(), drawn) - cumulative.begin();
      return min_ + std::min<int64_t>(rank, max_ - min_);
    });
  }

  const JsonValue& value_;
  const std::string& key_;
  const std::string& source_;
  int64_t count_ = 0, min_ = 0, max_ = 0;
};

}  // namespace

double PortableRandom::normal() {
  const double u1 = uniform(), u2 = uniform();
  return std::sqrt(-2.0 * std::log(1.0 - u1)) * std::cos(6.283185307179586476925 * u2);
}

std::vector<int32_t> read_length_distribution(const JsonValue& value, const std::string& key,
                                              const std::string& source) {
  return DistributionReader(value, key, source).read();
}

}  // namespace mxfa
