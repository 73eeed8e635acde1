world = {"hall": {"n": "kitchen", "items": ["lamp"]}, "kitchen": {"s": "hall", "items": []}}; room, inv = "hall", []
for cmd in ["look", "take lamp", "take sword", "n", "drop lamp", "dance", "inventory"]:
    match cmd.split():
        case ["look"]: print(room, world[room]["items"])
        case ["take", x] if x in world[room]["items"]: world[room]["items"].remove(x); inv.append(x); print("taken", x)
        case ["take", x]: print("no", x)
        case ["drop", x]: inv.remove(x); world[room]["items"].append(x); print("dropped")
        case ["n" | "s" as d] if d in world[room]: room = world[room][d]; print("you are in", room)
        case ["inventory" | "i"]: print(inv)
        case other: print("what?", other)
