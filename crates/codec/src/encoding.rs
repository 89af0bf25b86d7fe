//! The binary encoding of claims and journals, in which each value has exactly one encoding.
//!
//! A number is an unsigned LEB128 varint in its shortest form. A byte string is its length as a
//! number, followed by the bytes. The encoding has no type tags: both sides agree on the order of
//! the values.
//!
//! This module is public for `mrtr-server`, which encodes its journal this way. It is hidden from
//! the documentation and exempt from semantic versioning.

/// The input is truncated, or a value is not in its only valid encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed encoding")]
pub struct DecodeError;

/// Appends encoded values to a buffer.
#[derive(Debug, Default)]
pub struct Encoder(Vec<u8>);

impl Encoder {
    /// Creates an empty encoder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty encoder with room for `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Appends one byte.
    pub fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    /// Appends a number as a varint.
    #[expect(clippy::cast_possible_truncation, reason = "only the low seven bits are taken")]
    pub fn number(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8)
    }

    /// Appends a byte string with its length.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.number(value.len() as u64).raw(value)
    }

    /// Appends bytes without their length, for a field of fixed length or the last field.
    pub fn raw(&mut self, value: &[u8]) -> &mut Self {
        self.0.extend_from_slice(value);
        self
    }

    /// Appends `0` for an absent byte string, or `1` and the byte string.
    pub fn option(&mut self, value: Option<&[u8]>) -> &mut Self {
        match value {
            None => self.byte(0),
            Some(value) => self.byte(1).bytes(value),
        }
    }

    /// Returns the encoded bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads values in the order in which they were encoded.
#[derive(Debug, Clone, Copy)]
pub struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    /// Creates a decoder at the first byte of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads one byte.
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.0.split_first().ok_or(DecodeError)?;
        self.0 = rest;
        Ok(*first)
    }

    /// Reads a number.
    pub fn number(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte holds the 64th bit only.
            if shift > 63 || (shift == 63 && bits > 1) {
                return Err(DecodeError);
            }
            value |= bits << shift;
            if byte < 0x80 {
                // A last byte of zero would be a second encoding of the same number.
                return if byte == 0 && shift > 0 { Err(DecodeError) } else { Ok(value) };
            }
        }
        Err(DecodeError)
    }

    /// Reads a byte string with its length.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(self.number()?).map_err(|_| DecodeError)?;
        let (head, rest) = self.0.split_at_checked(length).ok_or(DecodeError)?;
        self.0 = rest;
        Ok(head)
    }

    /// Reads exactly `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(DecodeError)?;
        self.0 = rest;
        Ok(*head)
    }

    /// Reads a UTF-8 string with its length.
    pub fn text(&mut self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| DecodeError)
    }

    /// Reads an optional byte string.
    pub fn option(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        match self.byte()? {
            0 => Ok(None),
            1 => self.bytes().map(Some),
            _ => Err(DecodeError),
        }
    }

    /// Reads an optional UTF-8 string.
    pub fn optional_text(&mut self) -> Result<Option<&'a str>, DecodeError> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| DecodeError);
        self.option()?.map(text).transpose()
    }

    /// Returns the bytes that have not been read.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Checks that all bytes have been read.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if bytes are left.
    pub fn end(self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_values_are_decoded_in_order() {
        for n in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut encoder = Encoder::new();
            encoder.number(n).bytes(b"bytes").option(None).option(Some(b"")).byte(9).raw(b"tail");
            let bytes = encoder.finish();
            let mut decoder = Decoder::new(&bytes);
            assert_eq!(decoder.number(), Ok(n));
            assert_eq!(decoder.text(), Ok("bytes"));
            assert_eq!((decoder.option(), decoder.option()), (Ok(None), Ok(Some(&b""[..]))));
            assert_eq!(decoder.byte(), Ok(9));
            assert_eq!(decoder.rest(), b"tail");
            assert_eq!(decoder.end(), Err(DecodeError));
        }
    }

    #[test]
    fn other_encodings_of_a_value_are_rejected() {
        for wrong in [
            &[0x80, 0x00][..],
            &[0x80],
            &[0xff; 10],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert_eq!(Decoder::new(wrong).number(), Err(DecodeError), "{wrong:?}");
        }
        assert_eq!(Decoder::new(&[5, 1]).bytes(), Err(DecodeError));
        assert_eq!(
            Decoder::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).bytes(),
            Err(DecodeError)
        );
        assert_eq!(Decoder::new(&[2]).option(), Err(DecodeError));
        assert_eq!(Decoder::new(&[1, 0xff]).text(), Err(DecodeError));
    }
}
