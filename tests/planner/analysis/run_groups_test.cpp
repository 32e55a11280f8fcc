#include "planner/analysis/run_groups.hpp"

#include <gtest/gtest.h>

namespace shardplan::plan {
namespace {

sim::RunRecord from(const std::string& group, const std::string& source) {
    sim::RunRecord record;
    record.group = group;
    record.source = source;
    return record;
}

TEST(RunGroups, PlaceIsTheFolderOfARepositoryWhateverTheRevision) {
    EXPECT_EQ(place_of("owner/name@v1.2:data/sub/a.csv, table 2"), "owner/name:data/sub");
    EXPECT_EQ(place_of("owner/name:data/sub/b.csv; layout from elsewhere"), "owner/name:data/sub");
    EXPECT_EQ(place_of("owner/name:README.md"), "owner/name:");
}

TEST(RunGroups, PlaceOfAPaperIsItsNumber) {
    EXPECT_EQ(place_of("arXiv 2205.05198 Table 5 as transcribed in a/b:c/d.py"),
              "arXiv 2205.05198");
    EXPECT_EQ(place_of("arXiv 2205.05198"), "arXiv 2205.05198");
}

TEST(RunGroups, OtherTextIsItsOwnPlace) {
    EXPECT_EQ(place_of("a page of our own"), "a page of our own");
    EXPECT_EQ(place_of("https://example.org/a/b"), "https://example.org/a/b");
}

TEST(RunGroups, GroupsOfOnePlaceAreOneAlsoOverAThird) {
    const auto groups = independent_groups(
        {from("single", "o/n:data/single.csv"), from("other", "o/other:data/x.csv"),
         from("multi", "o/n:data/multi.csv"), from("paper", "arXiv 1 Table 1"),
         from("multi", "arXiv 1 Table 2"), from("silent", ""), from("quiet", "")});
    const std::vector<std::vector<std::string>> expected = {
        {"single", "multi", "paper"}, {"other"}, {"silent"}, {"quiet"}};
    EXPECT_EQ(groups, expected);
}

} // namespace
} // namespace shardplan::plan
