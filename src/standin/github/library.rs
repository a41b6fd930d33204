//! Builds shared libraries that contain only the names of the libraries they are linked with: `config.sh` runs `ldd` on
//! three of .NET's, and the result depends on the machine alone.

/// The fixed parts of ELF (System V ABI, gABI 4.1).
const HEADER: u64 = 64;
const SEGMENT: u64 = 56;
const SYMBOL: u64 = 24;
/// The largest page size.
const PAGE: u64 = 0x1_0000;

/// Builds the bytes of a library for this machine that is linked with these.
pub(super) fn linked_with(names: &[&str]) -> Vec<u8> {
    let mut strings = vec![0];
    let needed: Vec<u64> = names
        .iter()
        .map(|name| {
            let at = strings.len() as u64;
            strings.extend(name.bytes().chain([0]));
            at
        })
        .collect();
    let symbols = HEADER + 3 * SEGMENT;
    let hash = symbols + SYMBOL;
    let dynamic = hash + 16;
    let length = (needed.len() as u64 + 6) * 16;
    let text = dynamic + length;
    let size = text + strings.len() as u64;

    let mut file = header();
    // Type, flags, place, its alignment: the loaded segment, its dynamic section, and no code on the stack.
    for [kind, flags, at, bytes, align] in
        [[1, 6, 0, size, PAGE], [2, 6, dynamic, length, 8], [0x6474_e551, 6, 0, 0, 16]]
    {
        put32(&mut file, kind);
        put32(&mut file, flags);
        put64(&mut file, &[at, at, at, bytes, bytes, align]);
    }
    file.extend([0; SYMBOL as usize]);
    // One bucket, one symbol: the empty one.
    file.extend([1_u32, 1, 0, 0].iter().flat_map(|word| word.to_le_bytes()));
    for at in needed {
        put64(&mut file, &[1, at]);
    }
    for entry in [[5, text], [6, symbols], [4, hash], [10, strings.len() as u64], [11, SYMBOL], [0, 0]] {
        put64(&mut file, &entry);
    }
    file.extend(strings);
    file
}

fn header() -> Vec<u8> {
    let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([3_u16, machine].iter().flat_map(|half| half.to_le_bytes()));
    put32(&mut file, 1);
    put64(&mut file, &[0, HEADER, 0]);
    put32(&mut file, 0);
    file.extend([64_u16, 56, 3, 64, 0, 0].iter().flat_map(|half| half.to_le_bytes()));
    file
}

fn put32(file: &mut Vec<u8>, value: u64) {
    file.extend(&value.to_le_bytes()[..4]);
}

fn put64(file: &mut Vec<u8>, values: &[u64]) {
    file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}
