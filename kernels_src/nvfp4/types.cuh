// Integer types of the kernels, for device and host compilers alike.
#pragma once

namespace cukiln {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;
using bf16 = u16;  // the bits of a number

template <class A, class B>
constexpr bool kIsSame = false;
template <class A>
constexpr bool kIsSame<A, A> = true;

}  // namespace cukiln
