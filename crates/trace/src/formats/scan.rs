//! Takes numbers and fields from a line, fast and without panicking on any input.

/// The part of a line not yet taken.
pub(crate) struct Scan<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Scan<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Self {
        Scan { rest: line }
    }

    /// A decimal number; stops at the first other byte. `None` without digits or on overflow.
    #[inline]
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        let mut i = 0;
        while let Some(d) = self.rest.get(i).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
            value = if i < 19 {
                value * 10 + u64::from(d)
            } else {
                value.checked_mul(10)?.checked_add(u64::from(d))?
            };
            i += 1;
        }
        self.rest = &self.rest[i..];
        (i > 0).then_some(value)
    }

    /// A decimal number with an optional fraction, in units of 1/`scale` (a power of ten);
    /// `u64::MAX` if it is larger.
    ///
    /// Digits beyond the precision of the unit are cut off.
    pub(crate) fn decimal(&mut self, scale: u64) -> Option<u64> {
        let whole = if self.rest.first() == Some(&b'.') { 0 } else { self.number()? };
        let mut value = whole.saturating_mul(scale);
        if self.rest.first() == Some(&b'.') {
            self.rest = &self.rest[1..];
            let (mut unit, mut digits) = (scale, 0);
            while let Some(d) =
                self.rest.get(digits).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10)
            {
                unit /= 10;
                value = value.saturating_add(u64::from(d) * unit);
                digits += 1;
            }
            self.rest = &self.rest[digits..];
        }
        Some(value)
    }

    /// Takes byte `b` if it is next.
    #[inline]
    pub(crate) fn byte(&mut self, b: u8) -> Option<()> {
        let (first, rest) = self.rest.split_first()?;
        (*first == b).then(|| self.rest = rest)
    }

    /// Takes blanks and tabs, at least one.
    #[inline]
    pub(crate) fn blanks(&mut self) -> Option<()> {
        let n = self.rest.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
        self.rest = &self.rest[n..];
        (n > 0).then_some(())
    }

    /// Takes blanks and tabs, if any.
    #[inline]
    pub(crate) fn trim(&mut self) {
        let _ = self.blanks();
    }

    /// Everything up to `separator`, which is taken too; the rest of the line if there is none.
    #[inline]
    pub(crate) fn field(&mut self, separator: u8) -> &'a [u8] {
        match memchr::memchr(separator, self.rest) {
            Some(n) => {
                let (field, rest) = self.rest.split_at(n);
                self.rest = &rest[1..];
                field
            }
            None => std::mem::take(&mut self.rest),
        }
    }

    /// Everything up to the next blank; blanks before it are dropped. Empty at the line's end.
    #[inline]
    pub(crate) fn word(&mut self) -> &'a [u8] {
        self.trim();
        let n = self.rest.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(n);
        self.rest = rest;
        word
    }

    /// Whether only blanks are left.
    pub(crate) fn at_end(&mut self) -> bool {
        self.trim();
        self.rest.is_empty()
    }
}

/// A whole field as a decimal number.
pub(crate) fn number(field: &[u8]) -> Option<u64> {
    let mut s = Scan::new(field.trim_ascii());
    s.number().filter(|_| s.rest.is_empty())
}

/// A whole field as a decimal number with a fraction, in units of 1/`scale`.
pub(crate) fn decimal(field: &[u8], scale: u64) -> Option<u64> {
    let mut s = Scan::new(field.trim_ascii());
    s.decimal(scale).filter(|_| s.rest.is_empty())
}

/// A whole field as a hexadecimal number, with or without 0x.
pub(crate) fn hex(field: &[u8]) -> Option<u64> {
    let field = field.strip_prefix(b"0x").or(field.strip_prefix(b"0X")).unwrap_or(field);
    if field.is_empty() || field.len() > 16 {
        return None;
    }
    field.iter().try_fold(0, |v, b| Some(v << 4 | u64::from((*b as char).to_digit(16)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_up_to_the_last_and_refused_beyond() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b"18446744073709551616"), None);
        assert_eq!(number(b"00000000000000000000000018446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b"99999999999999999999999"), None);
        for bad in [&b""[..], b"-1", b"1x", b"x", b"1.5"] {
            assert_eq!(number(bad), None);
        }
    }

    #[test]
    fn decimals_are_exact() {
        assert_eq!(decimal(b"13.191135", 1_000_000), Some(13_191_135));
        assert_eq!(decimal(b"0.000000517", 1_000_000_000), Some(517));
        assert_eq!(decimal(b".5", 1_000), Some(500));
        assert_eq!(decimal(b"7", 1_000), Some(7_000));
        assert_eq!(decimal(b"1.23456", 100), Some(123));
        assert_eq!(decimal(b"1.2.3", 100), None);
        assert_eq!(decimal(b"18446744073709551615.9", 10), Some(u64::MAX));
    }

    #[test]
    fn hexadecimal_numbers_may_have_a_prefix() {
        assert_eq!(
            (hex(b"2a"), hex(b"0x28"), hex(b""), hex(b"g")),
            (Some(42), Some(40), None, None)
        );
        assert_eq!(hex(b"fffffffffffffffff"), None);
    }
}
