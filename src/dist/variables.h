#pragma once

#include <string>

#include <ampkit/dist/launch_environment.h>

namespace ampkit::dist {

/// Environment variables whose values were checked. `launcher` is who should
/// have set them.
class Variables {
 public:
  Variables(const ReadVariable& read, Launcher launcher)
      : read_(read), launcher_(launcher) {}

  bool has(const std::string& name) const { return read_(name).has_value(); }

  /// Throws c10::ValueError if it is missing.
  std::string text(const std::string& name) const;

  /// In [least, most]. Throws c10::ValueError if it is missing, no number, or
  /// outside; `limit` names what set `most`, where that is another variable.
  int number(
      const std::string& name,
      int least,
      int most,
      const std::string& limit = "") const;

  int number_or(
      const std::string& name, int otherwise, int least, int most) const;

 private:
  const ReadVariable& read_;
  Launcher launcher_;
};

} // namespace ampkit::dist
