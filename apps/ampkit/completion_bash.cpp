#include <fmt/format.h>
#include <fmt/ranges.h>

#include "completion_model.h"

namespace ampkit::app {
namespace {

using Kind = CompletionValue::Kind;

// Two things make this longer than it looks. bash splits words at "=", so that
// words are cut out of the line here, and what stands before the "=" must not
// be in the reply. And nothing of the bash-completion package is used, which
// need not be there.
constexpr const char* kFrame =
    R"(# bash completion for {program}. Use it in this shell:
#   source <({program} completion bash)
_{program}_reply() {{  # WORDS: what can stand here
  local match
  while IFS= read -r match; do
    COMPREPLY+=("${{match#"$strip"}}")
  done < <(compgen -W "$1" -- "$cur")
}}

_{program}_files() {{  # compgen's options: files that can stand here
  compopt -o filenames 2>/dev/null
  local match
  while IFS= read -r match; do
    COMPREPLY+=("$match")
  done < <(compgen "$@" -- "$cur")
}}

_{program}_value() {{  # COMMAND OPTION: completes its value, or fails
  case "$1 $2" in
{values}    *) return 1 ;;
  esac
}}

_{program}() {{
  local line="${{COMP_LINE:0:COMP_POINT}}" words cur="" strip="" command="" option word
  read -ra words <<<"$line"
  if [[ $line != *[[:space:]] ]]; then
    cur="${{words[-1]}}"
    unset 'words[-1]'
  fi
  for word in "${{words[@]:1}}"; do
    case "$word" in
      {command_pattern}) command="$word" && break ;;
    esac
  done
  COMPREPLY=()
  if [[ $cur == --*=* ]]; then
    words+=("${{cur%%=*}}")
    cur="${{cur#*=}}"
  fi
  if [[ $cur == *=* && $COMP_WORDBREAKS == *=* ]]; then
    strip="${{cur%"${{cur##*=}}"}}"
  fi
  option="${{words[-1]}}"
  for word in "${{words[@]}}"; do
    case "$command $word" in
      {many}) option="$word" ;; # its values go on
      *" -"*) option="${{words[-1]}}" ;;
    esac
  done
  if [[ $cur != -* ]] && _{program}_value "$command" "$option"; then
    return
  fi
  case "$command $cur" in
{options}  esac
  case "$command" in
{positionals}  esac
}}
complete -F _{program} {program}
)";

std::string also_words(
    const CompletionModel& model,
    const CompletionValue& value,
    const std::string& command) {
  return value.words.empty() ? command
                             : fmt::format(
                                   "{}\n      _{}_reply \"{}\"",
                                   command,
                                   model.program,
                                   fmt::join(value.words, " "));
}

/// The command that completes a value.
std::string reply(const CompletionModel& model, const CompletionValue& value) {
  switch (value.kind) {
    case Kind::words:
      return fmt::format(
          "_{}_reply \"{}\"", model.program, fmt::join(value.words, " "));
    case Kind::config_key: {
      std::string names;
      std::string pairs;
      for (const auto& key : model.keys) {
        names += key.name + "= ";
        for (const auto& word : key.values) {
          pairs += key.name + "=" + word + " ";
        }
      }
      return fmt::format(
          "if [[ $cur == *=* ]]; then\n        _{0}_reply \"{1}\"\n      else\n"
          "        compopt -o nospace 2>/dev/null\n        _{0}_reply "
          "\"{2}\"\n      fi",
          model.program,
          pairs,
          names);
    }
    case Kind::file:
      return also_words(
          model, value, fmt::format("_{}_files -f", model.program));
    case Kind::toml_file:
      return also_words(
          model,
          value,
          fmt::format(
              "_{0}_files -f -X '!*.toml'\n      _{0}_files -d",
              model.program));
    case Kind::folder:
      return fmt::format("_{}_files -d", model.program);
    case Kind::nothing:
    case Kind::text:
      break;
  }
  return ":"; // anything: nothing to offer
}

std::string values(const CompletionModel& model) {
  std::string out;
  for (const auto& command : model.commands) {
    for (const auto& option : command.options) {
      if (option.value.kind == Kind::nothing) {
        continue;
      }
      std::vector<std::string> patterns;
      for (const auto& name : option.names) {
        patterns.push_back(fmt::format("\"{} {}\"", command.name, name));
      }
      out += fmt::format(
          "    {})\n      {}\n      ;;\n",
          fmt::join(patterns, " | "),
          reply(model, option.value));
    }
  }
  return out;
}

/// A pattern of "COMMAND OPTION" for options that take many values.
std::string many(const CompletionModel& model) {
  std::string pattern = "\"\""; // never
  for (const auto& command : model.commands) {
    for (const auto& option : command.options) {
      for (const auto& name : option.names) {
        if (option.value.many) {
          pattern += fmt::format(" | \"{} {}\"", command.name, name);
        }
      }
    }
  }
  return pattern;
}

std::string options(const CompletionModel& model) {
  std::string out;
  for (const auto& command : model.commands) {
    std::vector<std::string> names;
    for (const auto& option : command.options) {
      names.insert(names.end(), option.names.begin(), option.names.end());
    }
    out += fmt::format(
        "    \"{} -\"*) _{}_reply \"{}\" && return ;;\n",
        command.name,
        model.program,
        fmt::join(names, " "));
  }
  return out;
}

std::vector<std::string> command_names(const CompletionModel& model) {
  std::vector<std::string> names;
  for (const auto& command : model.commands) {
    if (!command.name.empty()) {
      names.push_back(command.name);
    }
  }
  return names;
}

std::string positionals(const CompletionModel& model) {
  std::string out;
  for (const auto& command : model.commands) {
    if (!command.positionals.empty()) {
      out += fmt::format(
          "    {})\n      {}\n      ;;\n",
          command.name,
          reply(model, command.positionals.front()));
    }
  }
  return out + fmt::format(
                   "    \"\") _{}_reply \"{}\" ;;\n",
                   model.program,
                   fmt::join(command_names(model), " "));
}

} // namespace

std::string bash_completion(const CompletionModel& model) {
  return fmt::format(
      fmt::runtime(kFrame),
      fmt::arg("program", model.program),
      fmt::arg("values", values(model)),
      fmt::arg(
          "command_pattern",
          fmt::format("{}", fmt::join(command_names(model), " | "))),
      fmt::arg("many", many(model)),
      fmt::arg("options", options(model)),
      fmt::arg("positionals", positionals(model)));
}

} // namespace ampkit::app
