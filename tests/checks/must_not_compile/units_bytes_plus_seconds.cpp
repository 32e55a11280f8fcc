// expect: no match for .operator\+.|invalid operands
#include "simulator/units/quantity.hpp"

int main() {
    const shardplan::sim::Bytes size(1.0);
    const shardplan::sim::Seconds time(2.0);
    const shardplan::sim::Bandwidth rate = size / time;
#ifdef BAD_LINE
    const auto nonsense = size + time;
#endif
    return rate.value() == 0.5 ? 0 : 1;
}
