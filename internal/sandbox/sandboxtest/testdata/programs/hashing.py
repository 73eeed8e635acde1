import hashlib, hmac, base64, binascii, zlib
for n in ("md5", "sha1", "sha256", "sha512", "sha3_256", "blake2b", "blake2s"): print(n, hashlib.new(n, b"kern").hexdigest()[:32])
h = hashlib.sha256(); h.update(b"a"); h.update(b"b"); print(h.hexdigest() == hashlib.sha256(b"ab").hexdigest(), h.digest_size, h.block_size)
print(hmac.new(b"k", b"m", "sha256").hexdigest(), hmac.compare_digest("a", "a"), hashlib.pbkdf2_hmac("sha256", b"p", b"s", 100).hex())
print(base64.b64encode(b"\x00\xff"), base64.urlsafe_b64decode("_-8="), base64.b32encode(b"hi"), base64.b85encode(b"hello"), binascii.hexlify(b"\x01", ), bytes.fromhex("de ad"))
