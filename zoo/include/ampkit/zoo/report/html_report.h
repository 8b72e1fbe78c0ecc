#pragma once

#include <filesystem>

#include <ampkit/export.h>

namespace ampkit::zoo {

/// Writes the report of a training run: one HTML file that needs nothing else,
/// no network either, with curves, results, configuration and machine.
///
/// Reads from `run_dir`:
///   metrics.jsonl  required; one JSON object a line, see docs/report.md
///   config.toml    shown as it is; its absence is noted in the report
///   machine.json   as Machine::to_json() writes it; likewise
/// Lines that cannot be read, such as a last one torn by a crash, are left out
/// and counted in the report. Where a resumed run repeats steps, the last
/// record of a step counts. Works on a run that is still going.
///
/// `output` is replaced as a whole or not at all; its folder must exist. Long
/// runs are thinned to a few thousand points a curve that keep every peak, so
/// the file stays below about 1 MB.
///
/// Throws c10::ValueError if `run_dir` is no folder with a metrics.jsonl, and
/// c10::Error naming the file if that holds no record, or `output` cannot be
/// written.
AMPKIT_API void write_html_report(
    const std::filesystem::path& run_dir, const std::filesystem::path& output);

/// Where reports go if nobody says otherwise: report.html in `run_dir`.
AMPKIT_API std::filesystem::path default_report_path(
    const std::filesystem::path& run_dir);

} // namespace ampkit::zoo
