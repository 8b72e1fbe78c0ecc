#include <fmt/format.h>
#include <fmt/ranges.h>

#include "completion_model.h"

namespace ampkit::app {
namespace {

using Kind = CompletionValue::Kind;

constexpr const char* kFrame = R"(#compdef {program}
# zsh completion for {program}. Use it in this shell:
#   source <({program} completion zsh)
_{program}_keys() {{
  if [[ $PREFIX == *=* ]]; then
    compadd -- {pairs}
  else
    compadd -S '' -- {names}
  fi
}}

_{program}_after() {{  # OPTION...: whether one of them is the last option typed
  [[ $PREFIX == -* ]] && return 1
  local before=${{${{(M)words[1,CURRENT-1]:#-*}}[-1]%%=*}}
  [[ -n $before && -n ${{(M)@:#$before}} ]]
}}

_{program}_words_or_files() {{  # GLOB WORD...
  compadd -- "${{@:2}}"
  _files -g "$1"
}}

_{program}() {{
  local context state state_descr line
  typeset -A opt_args
  _arguments -C {own_options} '1:command:->command' '*::argument:->argument'
  case $state in
    command)
      local -a commands=({commands})
      _describe command commands
      ;;
    argument)
      case $line[1] in
{arguments}      esac
      ;;
  esac
}}
compdef _{program} {program}
)";

/// `text` in single quotes.
std::string single_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

/// Marks that _arguments and _describe read themselves, made plain.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out;
}

std::string words_or_files(
    const CompletionModel& model,
    const CompletionValue& value,
    const char* glob) {
  // The leading space: called with no more than these arguments.
  return fmt::format(
      " _{}_words_or_files \"{}\" {}",
      model.program,
      glob,
      fmt::join(value.words, " "));
}

std::string action(const CompletionModel& model, const CompletionValue& value) {
  switch (value.kind) {
    case Kind::words:
      return fmt::format("({})", fmt::join(value.words, " "));
    case Kind::config_key:
      return fmt::format("_{}_keys", model.program);
    case Kind::file:
      return value.words.empty() ? "_files" : words_or_files(model, value, "*");
    case Kind::toml_file:
      return value.words.empty() ? "_files -g \"*.toml\""
                                 : words_or_files(model, value, "*.toml");
    case Kind::folder:
      return "_files -/";
    case Kind::nothing:
    case Kind::text:
      break;
  }
  return " ";
}

std::string option_specs(
    const CompletionModel& model, const CompletionCommand& command) {
  std::vector<std::string> specs;
  for (const auto& option : command.options) {
    for (const auto& name : option.names) {
      // "--output=" takes both "--output x" and "--output=x".
      const bool joins =
          option.value.kind != Kind::nothing && name.starts_with("--");
      auto spec = fmt::format(
          "*{}{}[{}]", name, joins ? "=" : "", plain(option.description));
      if (option.value.kind != Kind::nothing) {
        spec += ":value:" + action(model, option.value);
      }
      specs.push_back(single_quoted(spec));
    }
  }
  return fmt::format("{}", fmt::join(specs, " "));
}

/// Completes the second and later values of an option, of which _arguments
/// knows the first only.
std::string more_values(
    const CompletionModel& model, const CompletionCommand& command) {
  std::string out;
  for (const auto& option : command.options) {
    if (option.value.many) {
      out += fmt::format(
          "_{}_after {} && {} && return; ",
          model.program,
          fmt::join(option.names, " "),
          action(model, option.value));
    }
  }
  return out;
}

std::string arguments(const CompletionModel& model) {
  std::string out;
  for (const auto& command : model.commands) {
    if (command.name.empty()) {
      continue;
    }
    std::string positionals;
    for (const auto& value : command.positionals) {
      positionals += " " + single_quoted(":argument:" + action(model, value));
    }
    out += fmt::format(
        "        {}) {}_arguments {}{} ;;\n",
        command.name,
        more_values(model, command),
        option_specs(model, command),
        positionals);
  }
  return out;
}

std::string command_list(const CompletionModel& model) {
  std::vector<std::string> entries;
  for (const auto& command : model.commands) {
    if (!command.name.empty()) {
      entries.push_back(
          single_quoted(command.name + ":" + plain(command.description)));
    }
  }
  return fmt::format("{}", fmt::join(entries, " "));
}

} // namespace

std::string zsh_completion(const CompletionModel& model) {
  std::vector<std::string> names;
  std::vector<std::string> pairs;
  for (const auto& key : model.keys) {
    names.push_back(key.name + "=");
    for (const auto& word : key.values) {
      pairs.push_back(key.name + "=" + word);
    }
  }
  return fmt::format(
      fmt::runtime(kFrame),
      fmt::arg("program", model.program),
      fmt::arg("names", fmt::format("{}", fmt::join(names, " "))),
      fmt::arg("pairs", fmt::format("{}", fmt::join(pairs, " "))),
      fmt::arg("own_options", option_specs(model, model.commands.front())),
      fmt::arg("commands", command_list(model)),
      fmt::arg("arguments", arguments(model)));
}

} // namespace ampkit::app
