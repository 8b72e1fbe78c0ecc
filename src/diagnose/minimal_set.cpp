#include <ampkit/diagnose/minimal_set.h>

#include <algorithm>
#include <map>
#include <optional>

#include <c10/util/Exception.h>

namespace ampkit::diagnose {
namespace {

// Whether each candidate is chosen.
using Choice = std::vector<bool>;

// Thrown by SetSearch::ask() through the search; never leaves this file.
struct SearchStopped {
  SearchEnd why;
};

class SetSearch {
 public:
  SetSearch(
      const std::vector<std::string>& candidates,
      const std::function<bool(const std::vector<std::string>&)>& good,
      const MinimalSetOptions& options)
      : candidates_(candidates), good_(good), options_(options) {
    TORCH_CHECK_VALUE(
        options.max_runs >= 0,
        "find_minimal_set: max_runs must be >= 0, got ",
        options.max_runs);
    for (size_t i = 0; i < candidates.size(); ++i) {
      TORCH_CHECK_VALUE(
          places_.emplace(candidates[i], i).second,
          "find_minimal_set: the candidate \"",
          candidates[i],
          "\" is listed twice");
    }
    for (const SearchTrial& trial : options.known) {
      answers_[choice_of(trial.chosen)] = trial.good;
    }
  }

  MinimalSet run() {
    MinimalSet result;
    try {
      result.end = search();
    } catch (const SearchStopped& stopped) {
      result.end = stopped.why;
    }
    if (smallest_.has_value()) {
      result.chosen = names(*smallest_);
    }
    result.runs = runs_;
    return result;
  }

 private:
  SearchEnd search() {
    Choice must(candidates_.size(), false);
    if (ask(must)) {
      return SearchEnd::none_needed;
    }
    size_t open = candidates_.size(); // those before it may be needed
    if (!ask(with_first(must, open))) {
      return SearchEnd::none_helps;
    }
    do {
      const size_t last = first_good_prefix(must, open);
      must[last - 1] = true;
      open = last - 1;
    } while (!ask(must));
    return SearchEnd::found;
  }

  // The smallest n for which `must` and the first n candidates are good, where
  // n = 0 is known not to be and n = `open` to be.
  size_t first_good_prefix(const Choice& must, size_t open) {
    size_t bad = 0;
    size_t fine = open;
    while (fine - bad > 1) {
      const size_t middle = bad + (fine - bad) / 2;
      (ask(with_first(must, middle)) ? fine : bad) = middle;
    }
    return fine;
  }

  static Choice with_first(Choice choice, size_t count) {
    std::fill_n(choice.begin(), count, true);
    return choice;
  }

  bool ask(const Choice& choice) {
    auto known = answers_.find(choice);
    if (known == answers_.end()) {
      known = answers_.emplace(choice, run_once(choice)).first;
    }
    if (known->second &&
        (!smallest_.has_value() || size_of(choice) < size_of(*smallest_))) {
      smallest_ = choice;
    }
    return known->second;
  }

  bool run_once(const Choice& choice) {
    if (options_.interrupted && options_.interrupted()) {
      throw SearchStopped{SearchEnd::interrupted};
    }
    if (options_.max_runs > 0 && runs_ == options_.max_runs) {
      throw SearchStopped{SearchEnd::out_of_runs};
    }
    SearchTrial trial{.chosen = names(choice)};
    trial.good = good_(trial.chosen);
    ++runs_;
    if (options_.on_run) {
      options_.on_run(trial, runs_);
    }
    return trial.good;
  }

  static int64_t size_of(const Choice& choice) {
    return std::count(choice.begin(), choice.end(), true);
  }

  std::vector<std::string> names(const Choice& choice) const {
    std::vector<std::string> result;
    for (size_t i = 0; i < choice.size(); ++i) {
      if (choice[i]) {
        result.push_back(candidates_[i]);
      }
    }
    return result;
  }

  Choice choice_of(const std::vector<std::string>& chosen) const {
    Choice choice(candidates_.size(), false);
    for (const std::string& name : chosen) {
      const auto place = places_.find(name);
      TORCH_CHECK_VALUE(
          place != places_.end(),
          "find_minimal_set: a known trial names \"",
          name,
          "\", which is none of the ",
          candidates_.size(),
          " candidates; it belongs to another search");
      choice[place->second] = true;
    }
    return choice;
  }

  const std::vector<std::string>& candidates_;
  const std::function<bool(const std::vector<std::string>&)>& good_;
  const MinimalSetOptions& options_;
  std::map<std::string, size_t> places_;
  std::map<Choice, bool> answers_;
  std::optional<Choice> smallest_;
  int64_t runs_ = 0;
};

} // namespace

std::string to_string(SearchEnd end) {
  switch (end) {
    case SearchEnd::found:
      return "found";
    case SearchEnd::none_needed:
      return "none needed";
    case SearchEnd::none_helps:
      return "none helps";
    case SearchEnd::interrupted:
      return "interrupted";
    case SearchEnd::out_of_runs:
      return "out of runs";
  }
  return "unknown";
}

MinimalSet find_minimal_set(
    const std::vector<std::string>& candidates,
    const std::function<bool(const std::vector<std::string>& chosen)>& good,
    const MinimalSetOptions& options) {
  return SetSearch(candidates, good, options).run();
}

} // namespace ampkit::diagnose
