from collections import Counter, defaultdict, deque, namedtuple, OrderedDict, ChainMap
words = "the cat the dog the end a cat".split()
c = Counter(words); print(c.most_common(2), c["none"], c - Counter(the=1), sorted((c & Counter(cat=1, x=1)).items()), c.total())
d = defaultdict(list)
for w in words: d[len(w)].append(w)
print(dict(d)); q = deque([1, 2, 3], maxlen=3); q.append(4); q.appendleft(0); q.rotate(1); print(q)
P = namedtuple("P", "x y", defaults=[0]); p = P(1); print(p, p._replace(y=5), p._asdict(), P._fields)
o = OrderedDict(a=1, b=2); o.move_to_end("a"); print(list(o)); print(ChainMap({"a": 1}, {"a": 2, "b": 3})["b"])
