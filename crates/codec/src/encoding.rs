//! The encoding of the claims: lengths before bytes, one way to write a value, nothing to guess.
//!
//! A number is a LEB128 varint in its shortest form. Bytes are their length as a number, then the
//! bytes. There are no types in it: reader and writer agree on the order.

/// The bytes end too early, or a number or text is not in its only form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed packed bytes")]
pub struct UnpackError;

/// Writes values one after the other.
#[derive(Debug, Default)]
pub struct Packer(Vec<u8>);

impl Packer {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing yet, with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// One byte.
    pub fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    /// A number.
    #[expect(clippy::cast_possible_truncation, reason = "only the low seven bits are taken")]
    pub fn number(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8)
    }

    /// Bytes with their length.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.number(value.len() as u64).raw(value)
    }

    /// Bytes without their length: their number is fixed, or they are the last.
    pub fn raw(&mut self, value: &[u8]) -> &mut Self {
        self.0.extend_from_slice(value);
        self
    }

    /// Bytes that may be absent.
    pub fn option(&mut self, value: Option<&[u8]>) -> &mut Self {
        match value {
            None => self.byte(0),
            Some(value) => self.byte(1).bytes(value),
        }
    }

    /// The bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads values in the order in which they were written.
#[derive(Debug, Clone, Copy)]
pub struct Unpacker<'a>(&'a [u8]);

impl<'a> Unpacker<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8, UnpackError> {
        let (first, rest) = self.0.split_first().ok_or(UnpackError)?;
        self.0 = rest;
        Ok(*first)
    }

    /// A number.
    pub fn number(&mut self) -> Result<u64, UnpackError> {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || (shift == 63 && bits > 1) {
                return Err(UnpackError);
            }
            value |= bits << shift;
            if byte < 0x80 {
                // A last byte of zero would be a second way to write the same number.
                return if byte == 0 && shift > 0 { Err(UnpackError) } else { Ok(value) };
            }
        }
        Err(UnpackError)
    }

    /// Bytes with their length.
    pub fn bytes(&mut self) -> Result<&'a [u8], UnpackError> {
        let length = usize::try_from(self.number()?).map_err(|_| UnpackError)?;
        let (head, rest) = self.0.split_at_checked(length).ok_or(UnpackError)?;
        self.0 = rest;
        Ok(head)
    }

    /// Exactly `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], UnpackError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(UnpackError)?;
        self.0 = rest;
        Ok(*head)
    }

    /// Text with its length.
    pub fn text(&mut self) -> Result<&'a str, UnpackError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| UnpackError)
    }

    /// Bytes that may be absent.
    pub fn option(&mut self) -> Result<Option<&'a [u8]>, UnpackError> {
        match self.byte()? {
            0 => Ok(None),
            1 => self.bytes().map(Some),
            _ => Err(UnpackError),
        }
    }

    /// Text that may be absent.
    pub fn optional_text(&mut self) -> Result<Option<&'a str>, UnpackError> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| UnpackError);
        self.option()?.map(text).transpose()
    }

    /// All that was not read yet.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Ends the reading.
    ///
    /// # Errors
    ///
    /// If something is left.
    pub fn end(self) -> Result<(), UnpackError> {
        if self.0.is_empty() { Ok(()) } else { Err(UnpackError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        for n in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut packer = Packer::new();
            packer.number(n).bytes(b"bytes").option(None).option(Some(b"")).byte(9).raw(b"tail");
            let bytes = packer.finish();
            let mut reader = Unpacker::new(&bytes);
            assert_eq!(reader.number(), Ok(n));
            assert_eq!(reader.text(), Ok("bytes"));
            assert_eq!((reader.option(), reader.option()), (Ok(None), Ok(Some(&b""[..]))));
            assert_eq!(reader.byte(), Ok(9));
            assert_eq!(reader.rest(), b"tail");
            assert_eq!(reader.end(), Err(UnpackError));
        }
    }

    #[test]
    fn there_is_one_way_to_write_a_value() {
        for wrong in [
            &[0x80, 0x00][..],
            &[0x80],
            &[0xff; 10],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert_eq!(Unpacker::new(wrong).number(), Err(UnpackError), "{wrong:?}");
        }
        assert_eq!(Unpacker::new(&[5, 1]).bytes(), Err(UnpackError));
        assert_eq!(
            Unpacker::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).bytes(),
            Err(UnpackError)
        );
        assert_eq!(Unpacker::new(&[2]).option(), Err(UnpackError));
        assert_eq!(Unpacker::new(&[1, 0xff]).text(), Err(UnpackError));
    }
}
