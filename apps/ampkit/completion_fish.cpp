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
      // One -a: of several the last counts.
      return fmt::format(
          " -a '(__fish_complete_suffix .toml) {}'",
          fmt::join(value.words, " "));
    case Kind::folder:
      return " -a '(__fish_complete_directories)'";
    case Kind::nothing:
    case Kind::text:
      break;
  }
  return "";
}

/// Without -x any file may stand for the value.
const char* needs_value(const CompletionValue& value) {
  return value.kind == Kind::nothing ? ""
         : value.kind == Kind::file  ? " -r"
                                     : " -x";
}

std::string option_names(const CompletionOption& option) {
  std::string out;
  for (const auto& name : option.names) {
    out += name.starts_with("--") ? " -l " + name.substr(2)
                                  : " -s " + name.substr(1);
  }
  return out;
}

/// What stands without an option, and the second and later values of an option,
/// of which complete(1) knows the first only.
std::string positionals(
    const CompletionModel& model,
    const CompletionCommand& command,
    std::string condition) {
  std::string out;
  const auto add = [&](const std::string& where, const CompletionValue& value) {
    out += fmt::format(
        "complete -c {} -n {}{}\n",
        model.program,
        single_quoted(where),
        arguments(model, value));
  };
  for (const auto& option : command.options) {
    if (option.value.many) {
      const auto after = fmt::format(
          "__{}_after {}", model.program, fmt::join(option.names, " "));
      add(fmt::format("{}; and {}", condition, after), option.value);
      condition += "; and not " + after;
    }
  }
  for (const auto& value : command.positionals) {
    add(condition, value);
  }
  return out;
}

} // namespace

std::string fish_completion(const CompletionModel& model) {
  auto out = fmt::format(
      "# fish completion for {0}. Use it in this shell:\n"
      "#   {0} completion fish | source\n"
      "function __{0}_after  # OPTION...: whether one is the last option "
      "typed\n"
      "  set -l before (string match -- '-*' (commandline -opc))\n"
      "  set -q before[1]\n"
      "  and contains -- (string replace -r '=.*' '' -- $before[-1]) $argv\n"
      "end\n"
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
      out += begin + option_names(option) + needs_value(option.value) +
             arguments(model, option.value) + " -d " +
             single_quoted(option.description) + "\n";
    }
    out += positionals(model, command, condition);
  }
  return out;
}

} // namespace ampkit::app
