#include <ampkit/diagnose/tensor_summary.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include <ATen/Dispatch.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "diagnose/tensor_flags.h"

namespace ampkit::diagnose {
namespace {

void count_bad(double value, TensorSummary& summary) {
  if (std::isnan(value)) {
    ++summary.nans;
  } else if (value > 0) {
    ++summary.positive_infs;
  } else {
    ++summary.negative_infs;
  }
}

template <class T>
void summarize_as(const at::Tensor& tensor, TensorSummary& summary) {
  const T* data = tensor.const_data_ptr<T>();
  const auto smallest = static_cast<double>(std::numeric_limits<T>::min());
  const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
  const int64_t row_size = summary.elements / std::max<int64_t>(rows, 1);
  double sum = 0;
  summary.min = std::numeric_limits<double>::infinity();
  summary.max = -summary.min;
  for (int64_t i = 0; i < summary.elements; ++i) {
    const auto value = static_cast<double>(data[i]);
    if (!std::isfinite(value)) {
      count_bad(value, summary);
      if (summary.first_bad_row < 0) {
        summary.first_bad_row = i / row_size;
      }
      continue;
    }
    summary.min = std::min(summary.min, value);
    summary.max = std::max(summary.max, value);
    sum += value;
    summary.zeros += value == 0;
    summary.subnormals += value != 0 && std::abs(value) < smallest;
  }
  const int64_t finite = summary.elements - summary.non_finite();
  if (finite == 0) {
    summary.min = summary.max = 0;
  } else {
    summary.mean = sum / static_cast<double>(finite);
  }
}

std::string percent(int64_t part, int64_t whole) {
  std::ostringstream out;
  out.precision(3);
  out << 100.0 * static_cast<double>(part) / static_cast<double>(whole) << " %";
  return out.str();
}

void append_bad(const TensorSummary& summary, std::ostream& out) {
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) {
      out << ", " << count << " " << what << " of " << summary.elements;
    }
  };
  add(summary.nans, "NaN");
  add(summary.positive_infs, "inf");
  add(summary.negative_infs, "-inf");
}

void summarize_on_host(const at::Tensor& host, TensorSummary& summary) {
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, host.scalar_type(), "summarize", [&] {
        summarize_as<scalar_t>(host, summary);
      });
}

void check_can_summarize(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(
      tensor.defined() && is_watched_dtype(tensor.scalar_type()),
      "diagnose::summarize: tensor must be Float, Double, Half or BFloat16, "
      "got ",
      tensor.toString());
}

} // namespace

double TensorSummary::amax() const {
  return std::max(std::abs(min), std::abs(max));
}

TensorSummary summarize(const at::Tensor& tensor) {
  check_can_summarize(tensor);
  TensorSummary summary{
      .dtype = tensor.scalar_type(),
      .sizes = tensor.sizes().vec(),
      .elements = tensor.numel()};
  if (summary.elements > 0) {
    const c10::NoGradGuard no_grad;
    summarize_on_host(tensor.detach().cpu().contiguous(), summary);
  }
  return summary;
}

std::string to_string(const TensorSummary& summary) {
  std::ostringstream out;
  out.precision(4);
  out << c10::toString(summary.dtype) << " [" << c10::Join(", ", summary.sizes)
      << "]: ";
  if (summary.elements == summary.non_finite()) {
    out << (summary.elements == 0 ? "empty" : "nothing finite");
  } else {
    out << summary.min << " to " << summary.max << ", mean " << summary.mean;
  }
  if (summary.zeros > 0) {
    out << ", " << percent(summary.zeros, summary.elements) << " zeros";
  }
  if (summary.subnormals > 0) {
    out << ", " << percent(summary.subnormals, summary.elements)
        << " subnormal";
  }
  append_bad(summary, out);
  return out.str();
}

} // namespace ampkit::diagnose
