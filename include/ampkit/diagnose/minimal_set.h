#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ampkit/export.h>

namespace ampkit::diagnose {

/// A question of a search, and its answer.
struct SearchTrial {
  std::vector<std::string> chosen; ///< in the order of the candidates
  bool good = false;
};

/// Settings of find_minimal_set().
struct MinimalSetOptions {
  /// Most runs of `good`; 0: as many as the search takes.
  int64_t max_runs = 0;
  /// Answers of an earlier search over the same candidates, which are not
  /// asked for again: a search that was interrupted goes on where it was.
  std::vector<SearchTrial> known = {};
  /// Called after each run, with the number of runs so far.
  std::function<void(const SearchTrial&, int64_t runs)> on_run = nullptr;
  /// Asked before each run; true ends the search.
  std::function<bool()> interrupted = nullptr;
};

/// How a search ended.
enum class SearchEnd : uint8_t {
  found, ///< no smaller set was good
  none_needed, ///< the empty set is good
  none_helps, ///< not even all candidates together are good
  interrupted, ///< asked to stop
  out_of_runs, ///< max_runs were made
};

/// "found", "none needed", "none helps", "interrupted", "out of runs".
AMPKIT_API std::string to_string(SearchEnd end);

/// What find_minimal_set() found.
struct MinimalSet {
  SearchEnd end = SearchEnd::found;
  /// Good, and proved so by a run: minimal if `end` is found; else the smallest
  /// that was good, and empty if none was.
  std::vector<std::string> chosen;
  int64_t runs = 0; ///< without answers that were known
};

/// A smallest part of `candidates` for which `good` holds, where `good` never
/// turns false by choosing more: which layers must stay in FP32, for example.
///
///     const auto found = ampkit::diagnose::find_minimal_set(
///         layers, [&](const auto& in_float32) { return trains(in_float32); });
///
/// None of the result can be left out. Where several sets would do, candidates
/// at the front of the list are kept and those at the back are left out first.
/// Takes d * (log2(n) + 1) + 2 runs to find d of n candidates: halving to the
/// first prefix that is good, whose last member must be in, then the same
/// before it (the search for one cause after another of Zeller and
/// Hildebrandt's delta debugging, IEEE TSE 28(2), 2002, without its tries of
/// complements).
///
/// Where choosing more can turn `good` false after all, the result is good but
/// perhaps not the smallest. Throws c10::ValueError if a candidate is listed
/// twice, `max_runs` is negative or a known trial names something that is no
/// candidate; and what `good` throws.
AMPKIT_API MinimalSet find_minimal_set(
    const std::vector<std::string>& candidates,
    const std::function<bool(const std::vector<std::string>& chosen)>& good,
    const MinimalSetOptions& options = {});

} // namespace ampkit::diagnose
