#include "optim/adafactor_pass.h"

#include <algorithm>
#include <cmath>

#include "kernels/optim_adafactor.h"

namespace ampkit::optim {
namespace {

// Blocks of whole rows are the unit of parallel work. Each has its own sums of
// columns, so their number is limited.
constexpr size_t kElementsPerBlock = 32768;
constexpr size_t kMostBlocks = 64;

/// What is known of a matrix between the sweeps.
struct Progress {
  std::vector<float> row_squares;
  std::vector<float> row_factors;
  double step_size = 0;
};

class Pass {
 public:
  explicit Pass(std::span<const AdafactorMatrix> matrices)
      : matrices_(matrices), progress_(matrices.size()) {
    for (size_t i = 0; i < matrices.size(); ++i) {
      progress_[i].row_squares.resize(matrices[i].rows);
      progress_[i].row_factors.resize(matrices[i].rows);
      split(i);
    }
    columns_.resize(blocks_.size());
    sums_.resize(blocks_.size());
  }

  void run() {
    for_each_chunk(blocks_, true, [&](size_t b) { read(b); });
    const auto weight_squares = totals();
    for (size_t i = 0; i < matrices_.size(); ++i) {
      average(i);
    }
    for_each_chunk(blocks_, false, [&](size_t b) { measure(b); });
    const auto lengths = totals();
    for (size_t i = 0; i < matrices_.size(); ++i) {
      const AdafactorMatrix& m = matrices_[i];
      const auto count = static_cast<double>(m.rows * m.columns);
      const double alpha =
          m.rho * std::max(m.eps2, std::sqrt(weight_squares[i] / count));
      progress_[i].step_size =
          alpha / std::max(1.0, std::sqrt(lengths[i] / count) / m.d);
    }
    for_each_chunk(blocks_, true, [&](size_t b) { apply(b); });
  }

 private:
  void split(size_t i) {
    const AdafactorMatrix& m = matrices_[i];
    const size_t wanted = std::clamp<size_t>(
        m.rows * m.columns / kElementsPerBlock, 1, kMostBlocks);
    const size_t rows = (m.rows + wanted - 1) / wanted;
    for (size_t first = 0; first < m.rows; first += rows) {
      blocks_.push_back(
          {i, first * m.columns, std::min(rows, m.rows - first) * m.columns});
    }
  }

  /// Calls `body(matrix, progress, row number, row)` for the rows of a block.
  template <class Body>
  void for_each_row(size_t b, const Body& body) {
    const size_t i = blocks_[b].work;
    const AdafactorMatrix& m = matrices_[i];
    const size_t first = blocks_[b].offset / m.columns;
    const size_t end = first + blocks_[b].size / m.columns;
    for (size_t r = first; r < end; ++r) {
      body(
          m, progress_[i], r, kernels::slice(m.span, r * m.columns, m.columns));
    }
  }

  void read(size_t b) {
    columns_[b].assign(matrices_[blocks_[b].work].columns, 0);
    for_each_row(b, [&](const auto&, Progress& p, size_t r, const auto& row) {
      const auto sums = kernels::adafactor_read_row(row, columns_[b].data());
      p.row_squares[r] = static_cast<float>(sums.gradient_squares);
      sums_[b] += sums.weight_squares;
    });
  }

  void measure(size_t b) {
    for_each_row(b, [&](const auto& m, Progress& p, size_t r, const auto& row) {
      sums_[b] += kernels::adafactor_measure_row(row, variance(m, p, r));
    });
  }

  void apply(size_t b) {
    for_each_row(b, [&](const auto& m, Progress& p, size_t r, const auto& row) {
      kernels::adafactor_apply_row(
          row,
          variance(m, p, r),
          static_cast<float>(m.decay),
          static_cast<float>(p.step_size));
    });
  }

  static kernels::AdafactorVariance variance(
      const AdafactorMatrix& m, const Progress& p, size_t row) {
    return {p.row_factors[row], m.col_var, static_cast<float>(m.eps1 * m.eps1)};
  }

  /// Takes the sums of the last sweep, of each matrix in one order.
  std::vector<double> totals() {
    std::vector<double> totals(matrices_.size());
    for (size_t b = 0; b < blocks_.size(); ++b) {
      totals[blocks_[b].work] += sums_[b];
      sums_[b] = 0;
    }
    return totals;
  }

  /// `from` moved towards `to` as at::Tensor::lerp_() does it.
  static float lerp(float from, float to, double weight) {
    const auto w = static_cast<float>(weight);
    return w < 0.5F ? from + w * (to - from) : to - (to - from) * (1 - w);
  }

  void average(size_t i) {
    const AdafactorMatrix& m = matrices_[i];
    Progress& p = progress_[i];
    double sum = 0;
    for (size_t r = 0; r < m.rows; ++r) {
      const float mean = p.row_squares[r] / static_cast<float>(m.columns);
      m.row_var[r] = lerp(m.row_var[r], mean, m.forgetting);
      sum += m.row_var[r];
    }
    const double mean = std::max(sum / static_cast<double>(m.rows), m.eps1);
    for (size_t r = 0; r < m.rows; ++r) {
      p.row_factors[r] = static_cast<float>(m.row_var[r] / mean);
    }
    std::vector<double> squares(m.columns);
    for (size_t b = 0; b < blocks_.size(); ++b) {
      for (size_t c = 0; blocks_[b].work == i && c < m.columns; ++c) {
        squares[c] += columns_[b][c];
      }
    }
    for (size_t c = 0; c < m.columns; ++c) {
      const auto column =
          static_cast<float>(squares[c] / static_cast<double>(m.rows));
      m.col_var[c] = lerp(m.col_var[c], column, m.forgetting);
    }
  }

  std::span<const AdafactorMatrix> matrices_;
  std::vector<Progress> progress_;
  std::vector<Chunk> blocks_;
  std::vector<std::vector<float>> columns_; // of each block
  std::vector<double> sums_; // of each block, of the sweep that runs
};

} // namespace

void update_matrices(std::span<const AdafactorMatrix> matrices) {
  Pass(matrices).run();
}

} // namespace ampkit::optim
