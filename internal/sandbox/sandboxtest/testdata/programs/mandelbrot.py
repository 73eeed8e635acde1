for y in range(-8, 9, 2):
    print("".join(" .:-=+*#%@"[min(9, next((i for i in range(20) if abs(z := (z if i else 0j) ** 2 + complex(x / 12, y / 8)) > 2), 9))] if True else "" for x in range(-26, 10)) if (z := 0j) is not None else "")
