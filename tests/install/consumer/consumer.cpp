#include <cstdio>

#include "simulator/io/data_dir.hpp"
#include "simulator/units/quantity.hpp"

int main() {
    namespace sim = shardplan::sim;
    std::puts(sim::data_dir().c_str());
    return sim::Bytes(8.0) / sim::Seconds(2.0) == sim::Bandwidth(4.0) ? 0 : 1;
}
