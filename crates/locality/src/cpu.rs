//! The capabilities of the processor, detected once at run time.

/// Instruction sets that the inner loop is compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cpu {
    /// What the target guarantees.
    Baseline,
    /// x86-64-v3: population count, bit manipulation, 256-bit integer vectors.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Cpu {
    /// Returns the best instruction set that this processor supports.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
        {
            return Self::Avx2;
        }
        Self::Baseline
    }
}

/// Prefetches the cache line of `value`. A hint: it does not change results.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of every x86-64, and a prefetch never faults, whatever the address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
