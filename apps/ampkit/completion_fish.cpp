#include <fmt/format.h>
#include <fmt/ranges.h>

#include "completion_model.h"

namespace ampkit::app {
namespace {

using Kind = CompletionValue::Kind;

/// `text` in single quotes.
std::string single_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out + "'";
}

std::string all_keys(const CompletionModel& model) {
  std::vector<std::string> entries;
  for (const auto& key : model.keys) {
    entries.push_back(key.name + "=");
    for (const auto& word : key.values) {
      entries.push_back(key.name + "=" + word);
    }
  }
  return fmt::format("{}", fmt::join(entries, " "));
}

std::string words(const CompletionValue& value) {
  return value.words.empty() ? ""
                             : " -a " + single_quoted(fmt::format(
                                            "{}", fmt::join(value.words, " ")));
}

/// What complete(1) needs to offer a value; `-f` before it turned files off.
std::string arguments(
    const CompletionModel& model, const CompletionValue& value) {
  switch (value.kind) {
    case Kind::words:
      return words(value);
    case Kind::config_key:
      return " -a " + single_quoted(all_keys(model));
    case Kind::file:
      return " -F" + words(value);
    case Kind::toml_file:
      return " -a '(__fish_complete_suffix .toml)'" + words(value);
    case Kind::folder:
      return " -a '(__fish_complete_directories)'";
    case Kind::nothing:
    case Kind::text:
      break;
  }
  return "";
}

std::string option_names(const CompletionOption& option) {
  std::string out;
  for (const auto& name : option.names) {
    out += name.starts_with("--") ? " -l " + name.substr(2)
                                  : " -s " + name.substr(1);
  }
  return out;
}

} // namespace

std::string fish_completion(const CompletionModel& model) {
  auto out = fmt::format(
      "# fish completion for {0}. Use it in this shell:\n"
      "#   {0} completion fish | source\n"
      "complete -c {0} -f\n",
      model.program);
  for (const auto& command : model.commands) {
    const auto condition = command.name.empty()
                               ? std::string("__fish_use_subcommand")
                               : "__fish_seen_subcommand_from " + command.name;
    const auto begin = fmt::format(
        "complete -c {} -n {}", model.program, single_quoted(condition));
    if (!command.name.empty()) {
      out += fmt::format(
          "complete -c {} -n __fish_use_subcommand -a {} -d {}\n",
          model.program,
          command.name,
          single_quoted(command.description));
    }
    for (const auto& option : command.options) {
      out += begin + option_names(option) +
             (option.value.kind == Kind::nothing ? "" : " -r") +
             arguments(model, option.value) + " -d " +
             single_quoted(option.description) + "\n";
    }
    for (const auto& value : command.positionals) {
      out += begin + arguments(model, value) + "\n";
    }
  }
  return out;
}

} // namespace ampkit::app
