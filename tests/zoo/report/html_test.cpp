#include "report/html.h"

#include <limits>

#include <gtest/gtest.h>

namespace ampkit::zoo {
namespace {

TEST(HtmlTest, EveryCharacterThatHasAMeaningIsEscaped) {
  EXPECT_EQ(
      escape_html("<script>alert('a & \"b\"')</script>"),
      "&lt;script&gt;alert(&#39;a &amp; &quot;b&quot;&#39;)&lt;/script&gt;");
}

TEST(HtmlTest, Utf8IsKeptAndOtherBytesAreReplaced) {
  EXPECT_EQ(escape_html("é€\U0001F600"), "é€\U0001F600");
  EXPECT_EQ(escape_html("a\xFF\xC3"), "a\uFFFD\uFFFD");
  EXPECT_EQ(escape_html("\xE2\x82"), "\uFFFD\uFFFD"); // cut short
}

TEST(HtmlTest, TableEscapesNamesAndValues) {
  const auto html = html_table({{"<b>", "1 < 2"}});
  EXPECT_NE(html.find("&lt;b&gt;</th><td>1 &lt; 2"), std::string::npos);
  EXPECT_EQ(html_table({}), "");
}

TEST(HtmlTest, NumbersReadWell) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
  EXPECT_EQ(format_number(65536), "65,536");
  EXPECT_EQ(format_number(0.031254), "0.03125");
  EXPECT_EQ(format_number(3e-5), "3e-05");
  EXPECT_EQ(format_number(std::numeric_limits<double>::quiet_NaN()), "NaN");
  EXPECT_EQ(format_number(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(format_percent(0.92345), "92.34 %");
}

TEST(HtmlTest, DurationsChooseTheirUnit) {
  EXPECT_EQ(format_duration(3.25), "3.2 s");
  EXPECT_EQ(format_duration(200), "3 min 20 s");
  EXPECT_EQ(format_duration(7325), "2 h 2 min");
}

TEST(HtmlTest, PluralTakesAnSUnlessThereIsOne) {
  EXPECT_EQ(format_plural(1, "step"), "1 step");
  EXPECT_EQ(format_plural(1200, "step"), "1,200 steps");
}

} // namespace
} // namespace ampkit::zoo
