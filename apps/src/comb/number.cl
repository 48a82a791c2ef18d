// What a cell holds: the high bits of a sum of an output of SplitMix64, of what the cycle and the variable begin with and
// the row, and of so many steps of the golden ratio.
FUNCTION i64 number_of(const i64 base, const i64 row, const i64 x) {
    u64 bits = (u64)(base ^ row) + 0x9e3779b97f4a7c15;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    return (i64)(((bits ^ (bits >> 31)) + (u64)x * 0x9e3779b97f4a7c15) >> 40);
}
