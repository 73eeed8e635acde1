from collections import deque
grid = ["S.#.", "..#.", "#...", "..#E"]
pos = {c: (r, i) for r, l in enumerate(grid) for i, c in enumerate(l) if c in "SE"}
q, seen = deque([(pos["S"], 0)]), {pos["S"]}
while q:
    (r, c), d = q.popleft()
    if (r, c) == pos["E"]: print("steps", d); break
    for dr, dc in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        n = r + dr, c + dc
        if 0 <= n[0] < 4 and 0 <= n[1] < 4 and grid[n[0]][n[1]] != "#" and n not in seen: seen.add(n); q.append((n, d + 1))
