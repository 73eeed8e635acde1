import uuid, secrets, random
print(uuid.uuid5(uuid.NAMESPACE_DNS, "example.org"), uuid.UUID("12345678123456781234567812345678").hex, uuid.uuid4().version, len(secrets.token_hex(8)), len(secrets.token_urlsafe(16)) > 10)
random.seed(42); print(random.random(), random.randint(1, 100), random.choice("abc"), random.sample(range(50), 5), random.choices("ab", [1, 9], k=6), round(random.gauss(0, 1), 6), random.uniform(1, 2))
l = list(range(8)); random.Random(7).shuffle(l); print(l, random.Random("x").getrandbits(40), random.Random(1).randbytes(4).hex())
