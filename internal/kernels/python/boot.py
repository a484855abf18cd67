import os
def take(n):
    b = b""
    while len(b) < n:
        c = os.read(3, n - len(b))
        if not c: os._exit(0)
        b += c
    return b
kernel = {"__builtins__": dict(vars(__builtins__)), "__name__": "glovebox_kernel"}
while True: exec(compile(take(int(take(8))), "<glovebox kernel>", "exec", 0, True), kernel)
